#include "calibrate/bf16_strips.h"

#include <algorithm>

#include "kernels/half.h"

namespace pyquant::calibrate {

using namespace kernels;

namespace {

const TileKernel * const kKernel = tile_kernel();

int64_t round_up(int64_t n, int64_t step) {
    return (n + step - 1) / step * step;
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
    return kKernel != nullptr;
}

void Bf16Strips::resize(int64_t n, int64_t n_columns) {
    n_ = n;
    n_pairs_ = round_up((n + 1) / 2, kKernel->n_pairs);
    pairs_.resize(size_t(round_up(n_columns, kStrip) * n_pairs_ / kLinePairs));
    by_step_.resize(kKernel->by_step ? pairs_.size() : 0);
}

const uint32_t * Bf16Strips::as_row(int64_t column, int64_t pair) const {
    return kKernel->by_step ? by_step_.data()->pairs + place_by_step(column, pair) : as_column(column, pair);
}

size_t Bf16Strips::place_by_step(int64_t column, int64_t pair) const {
    const int64_t n_rows = kKernel->n_rows, n_together = kKernel->n_pairs;
    const int64_t step = column / n_rows * (n_pairs_ / n_together) + pair / n_together;
    return size_t((step * n_rows + column % n_rows) * n_together + pair % n_together);
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
            uint32_t * pairs = pairs_.data()->pairs + place(column, pair);
            round_strip(2 * pair < rows.n ? first : no_row, second, width, pairs);
            std::fill(pairs + width, pairs + kStrip, 0);
        }
        copy_by_step(column, {0, n_pairs_});
    }
}

void Bf16Strips::round_rows(const Rows & rows, Span columns) {
    constexpr int64_t together = 16;  // pairs: a strip of them stays in L1 while all its rows are read
    for (int64_t column = columns.begin; column < columns.end; column += kStrip) {
        for (int64_t begin = 0; begin < n_pairs_; begin += together) {
            const int64_t end = std::min(begin + together, n_pairs_);
            for (int64_t i = column; i < column + kStrip; ++i) {
                const float * row = rows.data + i * rows.stride;
                const int64_t n = i < columns.end ? n_ : 0;
                for (int64_t pair = begin; pair < end; ++pair) {
                    const float first = 2 * pair < n ? row[2 * pair] : 0;
                    const float second = 2 * pair + 1 < n ? row[2 * pair + 1] : 0;
                    pairs_.data()->pairs[place(i, pair)] = pair_of(first, second);
                }
            }
            copy_by_step(column, {begin, end});
        }
    }
}

void Bf16Strips::copy_by_step(int64_t strip, Span pairs) {
    if (!kKernel->by_step) {
        return;
    }
    for (int64_t j = 0; j < kStrip; ++j) {
        for (int64_t pair = pairs.begin; pair < pairs.end; pair += kKernel->n_pairs) {
            const uint32_t * numbers = as_column(strip + j, pair);
            uint32_t * to = by_step_.data()->pairs + place_by_step(strip + j, pair);
            for (int i = 0; i < kKernel->n_pairs; ++i) {
                to[i] = numbers[i * kStrip];
            }
        }
    }
}

void add_products(const Bf16Strips & a, const Bf16Strips & b, const Block & block, float weight, float * at,
                  int64_t stride) {
    const auto [rows, columns, lower] = block;
    const int64_t tile_rows = kKernel->n_rows;
    kKernel->begin();
    for (int64_t pair = 0; pair < a.n_pairs(); pair += kKernel->n_together) {
        const int64_t n_pairs = std::min(kKernel->n_together, a.n_pairs() - pair);
        for (int64_t row = rows.begin; row < rows.end; row += tile_rows) {
            const int64_t end_row = std::min(row + tile_rows, rows.end);
            const int64_t end = lower ? std::min(end_row, columns.end) : columns.end;
            for (int64_t column = columns.begin; column < end; column += kStrip) {
                float * to = at + (row - rows.begin) * stride + column - columns.begin;
                for (int64_t i = 0; i < end_row - row; ++i) {
                    for (int64_t j = 0; j < kStrip; j += 16) {
                        __builtin_prefetch(to + i * stride + j, 1);
                    }
                }
                alignas(Line) Tile tile;
                kKernel->multiply(a.as_row(row, pair), b.as_column(column, pair), n_pairs, tile);
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
    kKernel->end();
}

}  // namespace pyquant::calibrate
