#include "calibrate/bf16_strips.h"

#include <algorithm>

#include "calibrate/bf16_tile.h"
#include "cpu/features.h"
#include "kernels/half.h"

#if defined(__x86_64__) && __has_include(<avx512bf16intrin.h>)
#define PYQUANT_HAS_AVX512_BF16
#include "calibrate/bf16_tile_x86.h"
#endif

namespace pyquant::calibrate {

using namespace kernels;

namespace {

// Pairs of numbers whose products are summed up before they are added: few enough for a block's columns of
// them to stay in L2, and so many that sums are seldom read and written.
constexpr int64_t kPairsTogether = 256;

// This CPU's function, or none.
MultiplyTile multiply_tile() {
#if defined(PYQUANT_HAS_AVX512_BF16)
    if (cpu::has_avx512_bf16()) {
        return multiply_tile_avx512_bf16;
    }
#endif
    return nullptr;
}

uint32_t rounded_bits(float x) {
    const uint32_t bits = bits_of(x);
    return bits + 0x7fff + ((bits >> 16) & 1);  // the upper half is the BF16
}

uint32_t pair_of(float first, float second) {
    return (rounded_bits(first) >> 16) | (rounded_bits(second) & 0xffff0000);
}

void round_strip(const float * first, const float * second, int64_t n, uint32_t * pairs) {
    for (int64_t j = 0; j < n; ++j) {
        pairs[j] = pair_of(first[j], second[j]);
    }
}

}  // namespace

bool Bf16Strips::supported() {
    return multiply_tile() != nullptr;
}

void Bf16Strips::resize(int64_t n, int64_t n_columns) {
    n_ = n;
    n_pairs_ = (n + 1) / 2;
    pairs_.resize(size_t((n_columns + kStrip - 1) / kStrip * kStrip * n_pairs_));
}

size_t Bf16Strips::place(int64_t column, int64_t pair) const {
    return size_t((column / kStrip * n_pairs_ + pair) * kStrip + column % kStrip);
}

void Bf16Strips::round(const Rows & rows, Span columns) {
    static constexpr float no_row[kStrip] = {};
    for (int64_t column = columns.begin; column < columns.end; column += kStrip) {
        const int64_t width = std::min<int64_t>(kStrip, columns.end - column);
        for (int64_t pair = 0; pair < n_pairs_; ++pair) {
            const float * first = rows.data + 2 * pair * rows.stride + column;
            const float * second = 2 * pair + 1 < rows.n ? first + rows.stride : no_row;
            uint32_t * pairs = &pairs_[place(column, pair)];
            round_strip(first, second, width, pairs);
            std::fill(pairs + width, pairs + kStrip, 0);
        }
    }
}

void Bf16Strips::round_rows(const Rows & rows, Span columns) {
    constexpr int64_t together = 16;  // pairs: a strip of them stays in L1 while all its rows are read
    for (int64_t column = columns.begin; column < columns.end; column += kStrip) {
        for (int64_t begin = 0; begin < n_pairs_; begin += together) {
            const int64_t end = std::min(begin + together, n_pairs_);
            for (int64_t i = column; i < column + kStrip; ++i) {
                const float * row = rows.data + i * rows.stride;
                for (int64_t pair = begin; pair < end; ++pair) {
                    const float second = 2 * pair + 1 < n_ && i < columns.end ? row[2 * pair + 1] : 0;
                    pairs_[place(i, pair)] = i < columns.end ? pair_of(row[2 * pair], second) : 0;
                }
            }
        }
    }
}

void add_products(const Bf16Strips & a, const Bf16Strips & b, const Block & block, float weight, float * at,
                  int64_t stride) {
    static const MultiplyTile multiply = multiply_tile();
    const auto [rows, columns, lower] = block;
    for (int64_t pair = 0; pair < a.n_pairs(); pair += kPairsTogether) {
        const int64_t n_pairs = std::min(kPairsTogether, a.n_pairs() - pair);
        for (int64_t row = rows.begin; row < rows.end; row += kTileRows) {
            const int64_t end_row = std::min<int64_t>(row + kTileRows, rows.end);
            const int64_t end = lower ? std::min(end_row, columns.end) : columns.end;
            for (int64_t column = columns.begin; column < end; column += kStrip) {
                float * to = at + (row - rows.begin) * stride + column - columns.begin;
                for (int64_t i = 0; i < end_row - row; ++i) {
                    for (int64_t j = 0; j < kStrip; j += 16) {
                        __builtin_prefetch(to + i * stride + j, 1);
                    }
                }
                Tile tile;
                multiply(a.at(row, pair), b.at(column, pair), n_pairs, tile);
                for (int64_t i = row; i < end_row; ++i, to += stride) {
                    const int64_t end_here = lower ? std::min(i + 1, columns.end) : columns.end;
                    const int64_t n = std::min<int64_t>(kStrip, end_here - column);
                    for (int64_t j = 0; j < n; ++j) {
                        to[j] += weight * tile[i - row][j];
                    }
                }
            }
        }
    }
}

}  // namespace pyquant::calibrate
