// Rounds to BF16 on CPUs with AMX, which have AVX-512 for it: to nearest, ties to even.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/bf16_tile.h"

#define PYQUANT_AVX512_BF16 __attribute__((target("avx512f,avx512bf16")))

namespace pyquant::in_ggml {
namespace {

constexpr int kPairs = kernels::kLinePairs;  // of a register
constexpr int kNumbers = 2 * kPairs;

// A register of pairs after the other, `stride` apart. n_pairs: a multiple of kPairs.
PYQUANT_AVX512_BF16 inline void round_row(const float * x, int64_t n_pairs, int64_t stride, uint32_t * to) {
    for (int64_t i = 0; i < n_pairs; i += kPairs, x += kNumbers, to += stride) {
        const __m512 first = _mm512_loadu_ps(x), second = _mm512_loadu_ps(x + kPairs);
        _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(second, first));
    }
}

template <bool is_bf16>
PYQUANT_AVX512_BF16 inline __m512i weights_of(const char * at) {
    if (is_bf16) {
        return _mm512_loadu_si512(at);
    }
    const auto * half = reinterpret_cast<const __m256i *>(at);
    const __m512 first = _mm512_cvtph_ps(_mm256_loadu_si256(half)),
                 second = _mm512_cvtph_ps(_mm256_loadu_si256(half + 1));
    return (__m512i)_mm512_cvtne2ps_pbh(second, first);
}

// Rows x become columns y.
PYQUANT_AVX512_BF16 inline void transpose(__m512i (&x)[kPairs], __m512i (&y)[kPairs]) {
#pragma GCC unroll 16
    for (int i = 0; i < kPairs; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kPairs; i += 4) {  // x[i + c]: columns c, 4 + c, 8 + c, 12 + c of these four rows
        x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
        x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
        x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
        x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
    }
#pragma GCC unroll 16
    for (int c = 0; c < 4; ++c) {
        const __m512i low = _mm512_shuffle_i32x4(x[c], x[4 + c], 0x44),
                      high = _mm512_shuffle_i32x4(x[c], x[4 + c], 0xee),
                      low_behind = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0x44),
                      high_behind = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0xee);
        y[c] = _mm512_shuffle_i32x4(low, low_behind, 0x88);
        y[4 + c] = _mm512_shuffle_i32x4(low, low_behind, 0xdd);
        y[8 + c] = _mm512_shuffle_i32x4(high, high_behind, 0x88);
        y[12 + c] = _mm512_shuffle_i32x4(high, high_behind, 0xdd);
    }
}

// Rows of weights as a tile's columns; those that are missing are zeros. n_pairs: a multiple of kPairs.
template <bool is_bf16>
PYQUANT_AVX512_BF16 inline void columns_of(const char * rows, size_t row_bytes, int64_t n_rows,
                                           int64_t n_pairs, uint32_t * columns) {
    for (int64_t first = 0; first < kernels::kStrip; first += kPairs) {
        for (int64_t pair = 0; pair < n_pairs; pair += kPairs) {
            __m512i x[kPairs], y[kPairs];
#pragma GCC unroll 16
            for (int i = 0; i < kPairs; ++i) {
                const char * at = rows + size_t(first + i) * row_bytes + size_t(pair) * sizeof(uint32_t);
                x[i] = first + i < n_rows ? weights_of<is_bf16>(at) : _mm512_setzero_si512();
            }
            transpose(x, y);
#pragma GCC unroll 16
            for (int i = 0; i < kPairs; ++i) {
                _mm512_storeu_si512(columns + (pair + i) * kernels::kStrip + first, y[i]);
            }
        }
    }
}

}  // namespace
}  // namespace pyquant::in_ggml
