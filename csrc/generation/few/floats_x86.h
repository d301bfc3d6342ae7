// Registers of floats, by the vector instructions that this build may use: GGML is built for the same ones.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace pyquant::kernels {
namespace {

inline float sum_lanes(__m128 x) {
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

// Holds a value in its register. Without it GCC may read it from memory in each operation, and loads are then
// what bounds a kernel.
template <class Register>
inline Register in_register(Register x) {
    __asm__("" : "+v"(x));
    return x;
}

#if defined(__AVX512F__)
using Floats = __m512;

inline Floats load(const float * x) {
    return _mm512_loadu_ps(x);
}

inline void store(float * x, Floats values) {
    _mm512_storeu_ps(x, values);
}

inline Floats broadcast(float x) {
    return _mm512_set1_ps(x);
}

inline Floats multiply(Floats a, Floats b) {
    return _mm512_mul_ps(a, b);
}

inline Floats load_halves(const uint16_t * x) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(x)));
}

inline Floats load_bfloats(const uint16_t * x) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(x));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

inline Floats multiply_add(Floats a, Floats b, Floats sum) {
    return _mm512_fmadd_ps(a, b, sum);
}

// Adds the quarters of every half: quarter i of the result is of half i.
inline __m512 add_quarters(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

// Adds the halves of every register: half i of the result is of register i.
inline __m512 add_halves(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}

// The sums of the four quarters.
inline void sum_quarters(__m512 x, float * sums) {
    x = _mm512_add_ps(x, _mm512_permute_ps(x, 0x4e));
    x = _mm512_add_ps(x, _mm512_permute_ps(x, 0xb1));
    const __m512i first = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0);
    _mm_storeu_ps(sums, _mm512_castps512_ps128(_mm512_permutexvar_ps(first, x)));
}

// sums[i]: of the lanes of register i.
template <int n>
inline void sum_each(const Floats * registers, float * sums) {
    constexpr int padded = (n + 3) / 4 * 4;
    float all[padded];
#pragma GCC unroll 8
    for (int i = 0; i < padded; i += 4) {
        const Floats * r = registers + i;
        const __m512 low = add_halves(r[0], i + 1 < n ? r[1] : r[0]);
        const __m512 high = i + 2 < n ? add_halves(r[2], i + 3 < n ? r[3] : r[2]) : low;
        sum_quarters(add_quarters(low, high), all + i);
    }
    std::memcpy(sums, all, n * sizeof(float));
}
#else
using Floats = __m256;

inline Floats load(const float * x) {
    return _mm256_loadu_ps(x);
}

inline void store(float * x, Floats values) {
    _mm256_storeu_ps(x, values);
}

inline Floats broadcast(float x) {
    return _mm256_set1_ps(x);
}

inline Floats multiply(Floats a, Floats b) {
    return _mm256_mul_ps(a, b);
}

inline Floats load_halves(const uint16_t * x) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(x)));
}

inline Floats load_bfloats(const uint16_t * x) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i *>(x));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

inline Floats multiply_add(Floats a, Floats b, Floats sum) {
    return _mm256_fmadd_ps(a, b, sum);
}

template <int n>
inline void sum_each(const Floats * registers, float * sums) {
    for (int i = 0; i < n; ++i) {
        sums[i] = sum_lanes(
            _mm_add_ps(_mm256_extractf128_ps(registers[i], 1), _mm256_castps256_ps128(registers[i])));
    }
}
#endif

constexpr int kFloatLanes = sizeof(Floats) / sizeof(float);

}  // namespace
}  // namespace pyquant::kernels
