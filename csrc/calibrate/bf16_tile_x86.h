// A tile on x86-64: compiled for CPUs that the rest of the library does not ask for, called on these.
#pragma once

#include <immintrin.h>

#include "calibrate/bf16_tile.h"

namespace pyquant::calibrate {
namespace {

__attribute__((target("avx512f,avx512bf16"))) inline void multiply_tile_avx512_bf16(const uint32_t * rows,
                                                                                    const uint32_t * columns,
                                                                                    int64_t n_pairs,
                                                                                    Tile & tile) {
    constexpr int lanes = 16, registers = kStrip / lanes;  // to a row
    __m512 sum[kTileRows][registers];
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 16
        for (int c = 0; c < registers; ++c) {
            sum[r][c] = _mm512_setzero_ps();
        }
    }
    for (int64_t pair = 0; pair < n_pairs; ++pair, rows += kStrip, columns += kStrip) {
        __m512i column[registers];
#pragma GCC unroll 16
        for (int c = 0; c < registers; ++c) {
            column[c] = _mm512_loadu_si512(columns + c * lanes);
        }
#pragma GCC unroll 16
        for (int r = 0; r < kTileRows; ++r) {
            const __m512i row = _mm512_set1_epi32(int(rows[r]));
#pragma GCC unroll 16
            for (int c = 0; c < registers; ++c) {
                sum[r][c] = _mm512_dpbf16_ps(sum[r][c], (__m512bh)row, (__m512bh)column[c]);
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 16
        for (int c = 0; c < registers; ++c) {
            _mm512_storeu_ps(tile[r] + c * lanes, sum[r][c]);
        }
    }
}

}  // namespace
}  // namespace pyquant::calibrate
