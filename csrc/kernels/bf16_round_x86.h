// Rounds to BF16 on CPUs with instructions for it, to nearest and ties to even, and lays pairs as a tile has
// them (bf16_tile.h).
#pragma once

#include <immintrin.h>

#include "kernels/bf16_tile.h"

#define PYQUANT_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

namespace pyquant::kernels {
namespace {

constexpr size_t kAhead = 1024;  // bytes of a row that are asked of memory before they are read

constexpr int kHalf = 16;  // numbers of a register of float32; a register of pairs has two of them

PYQUANT_AVX512_BF16 inline __m512i pairs_of(__m512 first, __m512 second) {
    return (__m512i)_mm512_cvtne2ps_pbh(second, first);
}

// Loads the first n numbers, up to 16, and zeros.
template <Number type>
PYQUANT_AVX512_BF16 inline __m512 load(const char * x, int64_t n) {
    const int64_t here = n < 0 ? 0 : n > kHalf ? kHalf : n;
    const auto mask = __mmask16((1u << here) - 1);
    if (type == kFloat32) {
        return _mm512_maskz_loadu_ps(mask, x);
    }
    const __m256i half = _mm256_maskz_loadu_epi16(mask, x);
    return type == kFloat16 ? _mm512_cvtph_ps(half)
                            : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// Rows x become columns y.
PYQUANT_AVX512_BF16 inline void transpose(__m512i (&x)[kLinePairs], __m512i (&y)[kLinePairs]) {
#pragma GCC unroll 16
    for (int i = 0; i < kLinePairs; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLinePairs; i += 4) {  // x[i + c]: columns c, 4 + c, 8 + c, 12 + c of these four rows
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

// Stores rows x as columns, `stride` pairs apart.
PYQUANT_AVX512_BF16 inline void store_transposed(__m512i (&x)[kLinePairs], int64_t stride, uint32_t * to) {
    __m512i y[kLinePairs];
    transpose(x, y);
#pragma GCC unroll 16
    for (int i = 0; i < kLinePairs; ++i) {
        _mm512_storeu_si512(to + i * stride, y[i]);
    }
}

// Rounds the numbers that make a register of pairs.
PYQUANT_AVX512_BF16 inline __m512i round_numbers(const float * x) {
    return pairs_of(_mm512_loadu_ps(x), _mm512_loadu_ps(x + kHalf));
}

template <Number type>
PYQUANT_AVX512_BF16 inline void pair_columns(const char * first, const char * second, int64_t n,
                                             uint32_t * pairs) {
    constexpr size_t register_bytes = kHalf * kNumberBytes[type];
    for (int64_t i = 0; i < kStrip; i += kHalf, first += register_bytes, second += register_bytes) {
        const __m512i both = pairs_of(load<type>(first, n - i), load<type>(second, n - i));
        const __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(both)),
                      high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(both, 1));
        _mm512_storeu_si512(pairs + i, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

// Some rows at a time, as CPUs foresee no more of them than that.
template <Number type>
PYQUANT_AVX512_BF16 inline void pair_rows(const char * rows, size_t stride, int64_t n_rows, int64_t n,
                                          uint32_t * pairs) {
    constexpr size_t register_bytes = kHalf * kNumberBytes[type];
    for (int64_t column = 0; column < kStrip; column += kLinePairs, rows += kLinePairs * stride) {
        const char * at = rows;
        uint32_t * to = pairs + column;
        for (int64_t left = n; left > 0; left -= 2 * kHalf) {
            __m512i x[kLinePairs];
#pragma GCC unroll 16
            for (int i = 0; i < kLinePairs; ++i) {
                const char * row = at + size_t(i) * stride;
                __builtin_prefetch(row + kAhead);
                x[i] = column + i < n_rows
                           ? pairs_of(load<type>(row, left), load<type>(row + register_bytes, left - kHalf))
                           : _mm512_setzero_si512();
            }
            store_transposed(x, kStrip, to);
            at += 2 * register_bytes;
            to += kLinePairs * kStrip;
        }
    }
}

constexpr Pairing kOfFloat32{pair_columns<kFloat32>, pair_rows<kFloat32>},
    kOfFloat16{pair_columns<kFloat16>, pair_rows<kFloat16>}, kOfBf16{pair_columns<kBf16>, pair_rows<kBf16>};

// Rows of numbers become columns of a strip.
PYQUANT_AVX512_BF16 inline void round_to_columns(const float * const * rows, int n_rows, int64_t n_pairs,
                                                 int64_t first, uint32_t * to) {
    to += first;
    for (int64_t pair = 0; pair < n_pairs; pair += kLinePairs, to += kLinePairs * kStrip) {
        __m512i x[kLinePairs];
#pragma GCC unroll 16
        for (int i = 0; i < kLinePairs; ++i) {
            x[i] = round_numbers(rows[i < n_rows ? i : 0] + 2 * pair);
        }
        store_transposed(x, kStrip, to);
    }
}

// They become rows whose steps of kLinePairs pairs are kMostRows such steps apart.
PYQUANT_AVX512_BF16 inline void round_to_steps(const float * const * rows, int n_rows, int64_t n_pairs,
                                               int64_t first, uint32_t * to) {
    for (int i = 0; i < n_rows; ++i) {
        uint32_t * step = to + (first + i) * kLinePairs;
        for (int64_t pair = 0; pair < n_pairs; pair += kLinePairs, step += kMostRows * kLinePairs) {
            _mm512_storeu_si512(step, round_numbers(rows[i] + 2 * pair));
        }
    }
}

// 16 columns of 16 pairs become rows.
PYQUANT_AVX512_BF16 inline void copy_step(const uint32_t * pairs, uint32_t * step) {
    __m512i x[kLinePairs];
#pragma GCC unroll 16
    for (int i = 0; i < kLinePairs; ++i) {
        x[i] = _mm512_loadu_si512(pairs + i * kStrip);
    }
    store_transposed(x, kLinePairs, step);
}

}  // namespace
}  // namespace pyquant::kernels
