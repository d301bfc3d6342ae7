// A tile of a product of BF16 matrices: sums over pairs of products, in float32.
#pragma once

#include <cstdint>

namespace pyquant::kernels {

inline constexpr int kStrip = 64;     // columns that lie together, and a tile's
inline constexpr int kMostRows = 32;  // of a tile

// A line of the cache: Intel reads its matrix registers at half the speed where their rows do not begin with
// one.
inline constexpr int kLinePairs = 16;
struct alignas(64) Line {
    uint32_t pairs[kLinePairs];
};

using Tile = float[kMostRows][kStrip];

// How a CPU multiplies. begin, end: called by each thread around its tiles.
struct TileKernel {
    int n_rows;   // of a tile
    int n_pairs;  // of a step: pairs are filled up with zeros to a multiple of these
    // How rows lie: as columns do, or step by step, where a step of a tile's rows is together: all pairs of
    // the first, then of the next.
    bool by_step;
    // Pairs whose products are summed up before they are added to others: few enough for a block's columns of
    // them to stay in L2, and so many that sums are seldom read and written.
    int64_t n_together;
    void (*begin)();
    void (*end)();
    // rows, columns: where those of the first pair stand. Columns of the next pair are kStrip behind.
    void (*multiply)(const uint32_t * rows, const uint32_t * columns, int64_t n_pairs, Tile & tile);
};

// This CPU's, or null.
const TileKernel * tile_kernel();

// Whether that is by Intel's matrix registers.
bool has_amx_tile();

}  // namespace pyquant::kernels
