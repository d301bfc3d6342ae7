// A tile of Hessian statistics: the sums over pairs of tokens of products of BF16 values.
#pragma once

#include <cstdint>

namespace pyquant::calibrate {

inline constexpr int kStrip = 64;     // columns that lie together, and a tile's
inline constexpr int kMostRows = 32;  // of a tile

using Tile = float[kMostRows][kStrip];

// How a CPU multiplies. begin, end: called by each thread around its tiles.
struct TileKernel {
    int n_rows;      // of a tile
    int n_pairs;     // of a step: pairs are filled up with zeros to a multiple of these
    bool by_column;  // how `rows` of `multiply` lie: each row's pairs together, or each pair's rows
    // Pairs whose products are summed up before they are added: few enough for a block's columns of them to
    // stay in L2, and so many that sums are seldom read and written.
    int64_t n_together;
    void (*begin)();
    void (*end)();
    // rows, columns: where those of the first pair of tokens stand. The next row's, or pair's, are
    // `row_stride` elements behind; those of the next pair of columns are kStrip behind.
    void (*multiply)(const uint32_t * rows, int64_t row_stride, const uint32_t * columns, int64_t n_pairs,
                     Tile & tile);
};

}  // namespace pyquant::calibrate
