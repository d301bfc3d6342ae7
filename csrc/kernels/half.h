// fp16 and bf16 to float32 and back, rounding to nearest even: the same results with and without
// the CPU's own instructions.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace pyquant::kernels {

inline float float_from_bits(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

inline uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float half_to_float(uint16_t half) {
#if defined(__F16C__)
    return _cvtsh_ss(half);
#else
    const uint32_t sign = uint32_t(half & 0x8000) << 16;
    const uint32_t magnitude = uint32_t(half & 0x7fff) << 13;
    if (magnitude >= 0x0f800000) {  // infinity or NaN
        return float_from_bits(sign | 0x7f800000 | magnitude);
    }
    // The multiplication moves the exponent's bias from 15 to 127 and is exact for subnormals too.
    return float_from_bits(sign | bits_of(float_from_bits(magnitude) * 0x1p112f));
#endif
}

inline uint16_t float_to_half(float x) {
#if defined(__F16C__)
    return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
#else
    const uint32_t sign = (bits_of(x) >> 16) & 0x8000;
    uint32_t bits = bits_of(x) & 0x7fffffff;
    if (bits >= 0x47800000) {  // 65536 and more, infinity, NaN
        return uint16_t(sign | (bits > 0x7f800000 ? 0x7e00 : 0x7c00));
    }
    if (bits < 0x38800000) {  // subnormal as a half: next to 0.5 a float's last bit is worth 2^-24 too
        return uint16_t(sign | (bits_of(float_from_bits(bits) + 0.5f) - 0x3f000000));
    }
    bits += 0x0fff + ((bits >> 13) & 1);
    return uint16_t(sign | ((bits - 0x38000000) >> 13));
#endif
}

inline void halves_to_floats(const uint16_t * in, int64_t n, float * out) {
    int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
        const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i *>(in + i));
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(halves));
    }
#endif
    for (; i < n; ++i) {
        out[i] = half_to_float(in[i]);
    }
}

inline void floats_to_halves(const float * in, int64_t n, uint16_t * out) {
    int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
        const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128(reinterpret_cast<__m128i *>(out + i), halves);
    }
#endif
    for (; i < n; ++i) {
        out[i] = float_to_half(in[i]);
    }
}

inline void bfloats_to_floats(const uint16_t * in, int64_t n, float * out) {
    for (int64_t i = 0; i < n; ++i) {
        out[i] = float_from_bits(uint32_t(in[i]) << 16);
    }
}

}  // namespace pyquant::kernels
