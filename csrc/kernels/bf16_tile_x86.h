// A tile on x86-64: compiled for CPUs that the rest of the library does not ask for, called on these.
#pragma once

#include "kernels/bf16_round_x86.h"

namespace pyquant::kernels {
namespace {

constexpr int kRegisterRows = 4;  // 16 registers of sums: enough to hide the products' latency

PYQUANT_AVX512_BF16 inline void multiply_by_registers(const uint32_t * rows, const uint32_t * columns,
                                                      int64_t n_pairs, Tile & tile) {
    constexpr int lanes = 16, registers = kStrip / lanes;  // to a row
    __m512 sum[kRegisterRows][registers];
#pragma GCC unroll 16
    for (int r = 0; r < kRegisterRows; ++r) {
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
        for (int r = 0; r < kRegisterRows; ++r) {
            const __m512i row = _mm512_set1_epi32(int(rows[r]));
#pragma GCC unroll 16
            for (int c = 0; c < registers; ++c) {
                sum[r][c] = _mm512_dpbf16_ps(sum[r][c], (__m512bh)row, (__m512bh)column[c]);
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRegisterRows; ++r) {
#pragma GCC unroll 16
        for (int c = 0; c < registers; ++c) {
            _mm512_storeu_ps(tile[r] + c * lanes, sum[r][c]);
        }
    }
}

inline void needs_nothing() {}

constexpr TileKernel kByRegisters{kRegisterRows,
                                  kStrip,
                                  256,
                                  needs_nothing,
                                  needs_nothing,
                                  multiply_by_registers,
                                  {kOfFloat32, kOfFloat16, kOfBf16},
                                  round_to_columns,
                                  nullptr};

#if defined(PYQUANT_HAS_AMX)
// AMX: eight registers of 16 rows of 64 bytes. Four of sums, 16 x 16 each, are fed by two of rows and two of
// columns: so each that is read is used twice.
constexpr int kAmxRows = 16, kAmxColumns = 16, kAmxPairs = kLinePairs;

struct alignas(64) AmxLayout {
    uint8_t palette = 1, start_row = 0, unused[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t n_rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Not _tile_loadconfig: GCC before 12.4 stores 8 of the 64 bytes that it reads (its bug 114098).
inline void begin_amx() {
    static constexpr AmxLayout layout;
    __asm__ volatile("ldtilecfg %0" ::"m"(layout) : "memory");
}

inline void end_amx() {
    __asm__ volatile("tilerelease" ::: "memory");
}

__attribute__((target("amx-tile,amx-bf16"))) inline void multiply_by_amx(const uint32_t * rows,
                                                                         const uint32_t * columns,
                                                                         int64_t n_pairs, Tile & tile) {
    constexpr int row_bytes = kAmxPairs * sizeof(uint32_t), column_bytes = kStrip * sizeof(uint32_t);
    for (int at = 0; at < kStrip; at += 2 * kAmxColumns) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t pair = 0; pair < n_pairs; pair += kAmxPairs) {
            const uint32_t *row = rows + pair * 2 * kAmxRows, *column = columns + pair * kStrip + at;
            _tile_loadd(4, row, row_bytes);
            _tile_loadd(5, row + kAmxRows * kAmxPairs, row_bytes);
            _tile_loadd(6, column, column_bytes);
            _tile_loadd(7, column + kAmxColumns, column_bytes);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        _tile_stored(0, &tile[0][at], column_bytes);
        _tile_stored(1, &tile[0][at + kAmxColumns], column_bytes);
        _tile_stored(2, &tile[kAmxRows][at], column_bytes);
        _tile_stored(3, &tile[kAmxRows][at + kAmxColumns], column_bytes);
    }
}

static_assert(2 * kAmxRows == kMostRows);
constexpr TileKernel kByAmx{
    kMostRows,      kMostRows, 512, begin_amx, end_amx, multiply_by_amx, {kOfFloat32, kOfFloat16, kOfBf16},
    round_to_steps, copy_step};
#endif

}  // namespace
}  // namespace pyquant::kernels
