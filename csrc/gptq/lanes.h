// Rows side by side, one in each lane of a vector. Rows are independent, so whatever is done to a column
// of one row is done to all of them at once, in the same order of operations.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#endif

#include "kernels/half.h"

namespace pyquant::gptq {

// One register: GCC takes vectors that are wider apart, element by element.
#ifdef __AVX512F__
inline constexpr int kLanes = 16;
#else
inline constexpr int kLanes = 8;
#endif

// Vectors of GCC and Clang.
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Ints = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));

inline Floats all(float x) {
    return x - Floats{};
}

inline Floats minimum(Floats a, Floats b) {
    return a < b ? a : b;
}

inline Floats maximum(Floats a, Floats b) {
    return a > b ? a : b;
}

inline Floats magnitude(Floats x) {
    return x < 0 ? -x : x;
}

// a * b + c, rounded once: the same everywhere, but slow where the CPU has no instruction for it.
inline Floats fma(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
    return Floats(_mm512_fmadd_ps(__m512(a), __m512(b), __m512(c)));
#elif defined(__FMA__)
    return Floats(_mm256_fmadd_ps(__m256(a), __m256(b), __m256(c)));
#else
    for (int r = 0; r < kLanes; ++r) {
        c[r] = std::fma(a[r], b[r], c[r]);
    }
    return c;
#endif
}

inline Floats fma(float a, Floats b, Floats c) {
    return fma(all(a), b, c);
}

inline bool any(Ints mask) {
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask(__m512i(mask), __m512i(mask)) != 0;
#else
    int32_t found = 0;
    for (int r = 0; r < kLanes; ++r) {
        found |= mask[r];
    }
    return found != 0;
#endif
}

// Rounds to the nearest integer, halves to even, numbers within +-2^22.
inline Floats nearest(Floats x) {
    const Floats shift = all(12582912.0f);  // 1.5 * 2^23: above it floats are integers
    return (x + shift) - shift;
}

// 0 where x is.
inline Floats inverse(Floats x) {
    return x != 0 ? 1.0f / x : all(0.0f);
}

// Rounds to the nearest fp16.
inline Floats as_halves(Floats x) {
    Floats out;
    for (int r = 0; r < kLanes; ++r) {
        out[r] = kernels::half_to_float(kernels::float_to_half(x[r]));
    }
    return out;
}

}  // namespace pyquant::gptq
