#include "calibrate/bf16_strips.h"

#include <algorithm>

namespace pyquant::calibrate {

using namespace kernels;

namespace {

constexpr int64_t kAhead = 16;  // rows that are asked of memory before they are read

const TileKernel * const kKernel = tile_kernel();

int64_t round_up(int64_t n, int64_t step) {
    return (n + step - 1) / step * step;
}

}  // namespace

bool Bf16Strips::supported() {
    return kKernel != nullptr;
}

void Bf16Strips::resize(int64_t n, int64_t n_columns, bool as_rows) {
    n_ = n;
    n_pairs_ = round_up((n + 1) / 2, kLinePairs);
    pairs_.resize(size_t(round_up(n_columns, kStrip) * n_pairs_ / kLinePairs));
    by_step_.resize(as_rows && kKernel->copy_step != nullptr ? pairs_.size() : 0);
}

const uint32_t * Bf16Strips::as_row(int64_t column, int64_t pair) const {
    return by_step_.empty() ? as_column(column, pair) : by_step_.pairs() + place_by_step(column, pair);
}

size_t Bf16Strips::place_by_step(int64_t column, int64_t pair) const {
    const int64_t n_rows = kKernel->n_rows;
    const int64_t step = column / n_rows * (n_pairs_ / kLinePairs) + pair / kLinePairs;
    return size_t((step * n_rows + column % n_rows) * kLinePairs + pair % kLinePairs);
}

size_t Bf16Strips::place(int64_t column, int64_t pair) const {
    return size_t((column / kStrip * n_pairs_ + pair) * kStrip + column % kStrip);
}

void Bf16Strips::round(const Numbers & rows, Span columns) {
    static constexpr char no_row[kStrip * sizeof(float)] = {};
    for (int64_t pair = 0; pair < n_pairs_; ++pair) {
        for (int64_t column = columns.begin; column < columns.end; column += kStrip) {
            const char * first = 2 * pair < rows.n ? rows.at(2 * pair, column) : no_row;
            const char * second = 2 * pair + 1 < rows.n ? rows.at(2 * pair + 1, column) : no_row;
            const int64_t width = std::min<int64_t>(kStrip, columns.end - column);
            for (int64_t row = 2 * pair + kAhead; row < std::min(2 * pair + kAhead + 2, rows.n); ++row) {
                __builtin_prefetch(rows.at(row, column));
                __builtin_prefetch(rows.at(row, column) + sizeof(Line));
            }
            kKernel->pairing[rows.type].columns(first, second, width, pairs_at(column, pair));
        }
    }
    copy_by_step(columns);
}

void Bf16Strips::round_rows(const Numbers & rows, Span columns) {
    for (int64_t column = columns.begin; column < columns.end; column += kStrip) {
        kKernel->pairing[rows.type].rows(rows.at(column, 0), rows.stride, columns.end - column, n_,
                                         pairs_at(column, 0));
    }
    copy_by_step(columns);
}

void Bf16Strips::copy_by_step(Span columns) {
    if (by_step_.empty()) {
        return;
    }
    for (int64_t column = columns.begin; column < round_up(columns.end, kStrip); column += kLinePairs) {
        for (int64_t pair = 0; pair < n_pairs_; pair += kLinePairs) {
            kKernel->copy_step(as_column(column, pair), by_step_.pairs() + place_by_step(column, pair));
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
