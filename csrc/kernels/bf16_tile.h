// A tile of a product of BF16 matrices: sums over pairs of products, in float32.
#pragma once

#include <cstddef>
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

// Types of numbers that are rounded.
enum Number { kFloat32, kFloat16, kBf16 };
inline constexpr size_t kNumberBytes[] = {4, 2, 2};

// Rounds numbers to pairs.
struct Pairing {
    // n numbers of two rows become a strip of pairs, filled up with zeros.
    void (*columns)(const char * first, const char * second, int64_t n, uint32_t * pairs);
    // n numbers of rows, which are `stride` bytes apart, become pairs of a strip's columns. Rows that are
    // missing are zeros, and so is what fills up the last kLinePairs pairs.
    void (*rows)(const char * rows, size_t stride, int64_t n_rows, int64_t n, uint32_t * pairs);
};

// How a CPU multiplies. Pairs are filled up with zeros to a multiple of kLinePairs.
struct TileKernel {
    int n_rows;  // of a tile
    // Rows that lie together: side by side for each pair, or for each kLinePairs pairs.
    int rows_together;
    // Pairs whose products are summed up before they are added to others: few enough for a block's columns of
    // them to stay in L2, and so many that sums are seldom read and written.
    int64_t n_together;
    // Called by each thread around its tiles.
    void (*begin)();
    void (*end)();
    // rows, columns: where those of the first pair stand. Columns of the next pair are kStrip behind.
    void (*multiply)(const uint32_t * rows, const uint32_t * columns, int64_t n_pairs, Tile & tile);
    Pairing pairing[3];  // by type
    // Rounds up to kLinePairs rows of numbers, which become those from `first` on of rows that lie together,
    // at `to`. n_pairs: a multiple of kLinePairs.
    void (*round_rows)(const float * const * rows, int n_rows, int64_t n_pairs, int64_t first, uint32_t * to);
    // Lays kLinePairs columns of as many pairs as a tile's rows: all pairs of the first, then of the next.
    // Null: rows lie as columns do.
    void (*copy_step)(const uint32_t * pairs, uint32_t * step);
};

// This CPU's, or null.
const TileKernel * tile_kernel();

// Whether that is by Intel's matrix registers.
bool has_amx_tile();

}  // namespace pyquant::kernels
