// A tile of Hessian statistics: the sums over pairs of tokens of products of BF16 values.
#pragma once

#include <cstdint>

namespace pyquant::calibrate {

inline constexpr int kStrip = 64;    // columns that lie together, and a tile's
inline constexpr int kTileRows = 4;  // with these, 16 registers of sums: enough to hide the products' latency

using Tile = float[kTileRows][kStrip];

// rows, columns: where those of the first pair of tokens stand, the next pair being kStrip elements after it.
using MultiplyTile = void (*)(const uint32_t * rows, const uint32_t * columns, int64_t n_pairs, Tile & tile);

}  // namespace pyquant::calibrate
