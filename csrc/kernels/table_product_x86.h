// The two paths for x86-64: functions compiled for CPUs that the rest of the library does not ask
// for, called where has_path says so.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "kernels/table_product.h"

#define PYQUANT_AVX2 __attribute__((target("avx2,fma,f16c")))
#define PYQUANT_AVX512_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

namespace pyquant::kernels {
namespace {

// Four activations, for every row.
PYQUANT_AVX2 inline __m256i quad_avx2(const Activations & column, int q) {
    int32_t quad;
    std::memcpy(&quad, column.codes + q * kQuad, sizeof quad);
    return _mm256_set1_epi32(quad);
}

template <int n_columns>
struct Avx2 {
    PYQUANT_AVX2 static void run(const TableGroup * group, const Table & table, const Activations * x,
                                 int64_t x_stride, int64_t n_blocks, float * y) {
        constexpr int rows = kGroup / 2;  // in a register
        const __m256i values = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
        const __m256i nibble = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
        for (int half = 0; half < 2; ++half) {
            __m256 sum[n_columns];
            for (int c = 0; c < n_columns; ++c) {
                sum[c] = _mm256_setzero_ps();
            }
            for (int64_t b = 0; b < n_blocks; ++b) {
                __m256i weights[kQuads];
                for (int p = 0; p < kPlanes; ++p) {
                    const __m256i codes = _mm256_loadu_si256((const __m256i *)group[b].codes[p][half * rows]);
                    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble);
                    weights[p] = _mm256_shuffle_epi8(values, _mm256_and_si256(codes, nibble));
                    weights[p + kPlanes] = _mm256_shuffle_epi8(values, high);
                }
                const __m256 d =
                    _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(group[b].d + half * rows)));
                for (int c = 0; c < n_columns; ++c) {
                    const Activations & column = x[b * x_stride + c];
                    __m256i products = _mm256_setzero_si256();
                    for (int q = 0; q < kQuads; ++q) {
                        // Unsigned times signed is what there is: |w| times x with the sign of w. A
                        // pair is at most 2 * 128 * 127, which 16 bits hold.
                        const __m256i signed_x = _mm256_sign_epi8(quad_avx2(column, q), weights[q]);
                        const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weights[q]), signed_x);
                        products = _mm256_add_epi32(products, _mm256_madd_epi16(pairs, ones));
                    }
                    const __m256 scale = _mm256_mul_ps(d, _mm256_set1_ps(column.d));
                    sum[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(products), scale, sum[c]);
                }
            }
            for (int c = 0; c < n_columns; ++c) {
                _mm256_storeu_ps(y + c * kGroup + half * rows, sum[c]);
            }
        }
    }
};

template <int n_columns>
struct Avx512Vnni {
    PYQUANT_AVX512_VNNI static void run(const TableGroup * group, const Table & table, const Activations * x,
                                        int64_t x_stride, int64_t n_blocks, float * y) {
        // Unsigned times signed is what there is: tables are moved up by 128, and the sum back.
        const __m512i values = _mm512_xor_si512(
            _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table)), _mm512_set1_epi8(-128));
        const __m512i nibble = _mm512_set1_epi8(15);
        __m512 sum[n_columns];
#pragma GCC unroll 16
        for (int c = 0; c < n_columns; ++c) {
            sum[c] = _mm512_setzero_ps();
        }
        for (int64_t b = 0; b < n_blocks; ++b) {
            __m512i weights[kQuads];
#pragma GCC unroll 16
            for (int p = 0; p < kPlanes; ++p) {
                const __m512i codes = _mm512_loadu_si512(group[b].codes[p]);
                const __m512i high = _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble);
                weights[p] = _mm512_shuffle_epi8(values, _mm512_and_si512(codes, nibble));
                weights[p + kPlanes] = _mm512_shuffle_epi8(values, high);
            }
            const __m512 d = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)group[b].d));
#pragma GCC unroll 16
            for (int c = 0; c < n_columns; ++c) {
                const Activations & column = x[b * x_stride + c];
                __m512i products = _mm512_set1_epi32(column.offset);
#pragma GCC unroll 16
                for (int q = 0; q < kQuads; ++q) {
                    int32_t quad;
                    std::memcpy(&quad, column.codes + q * kQuad, sizeof quad);
                    products = _mm512_dpbusd_epi32(products, weights[q], _mm512_set1_epi32(quad));
                }
                const __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(column.d));
                sum[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), scale, sum[c]);
            }
        }
#pragma GCC unroll 16
        for (int c = 0; c < n_columns; ++c) {
            _mm512_storeu_ps(y + c * kGroup, sum[c]);
        }
    }
};

}  // namespace
}  // namespace pyquant::kernels

#undef PYQUANT_AVX2
#undef PYQUANT_AVX512_VNNI
