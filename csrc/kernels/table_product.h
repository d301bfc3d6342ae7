// Matrix products of 4-bit codes that decode through a table of 16 values. Sixteen rows are
// interleaved so that a vector register holds four weights of each: a table look-up is one byte
// shuffle, a product with four activations one instruction for all rows, and no sum crosses lanes.
#pragma once

#include <cstdint>

#include "kernels/block.h"

namespace pyquant::kernels {

inline constexpr int kGroup = 16;  // rows
inline constexpr int kTile = 12;   // columns that are multiplied at once, at most
inline constexpr int kQuad = 4;    // weights of a row that lie together
inline constexpr int kQuads = kBlock / kQuad;
inline constexpr int kPlanes = kQuads / 2;

// One block of each of 16 rows. The low nibbles of plane p are the rows' weights 4 p .. 4 p + 3, the
// high ones those 16 further on: the words of BlockQ4_0, transposed.
struct TableGroup {
    uint16_t d[kGroup];  // fp16
    uint8_t codes[kPlanes][kGroup][kQuad];
};
static_assert(sizeof(TableGroup) == kGroup * sizeof(BlockQ4_0), "nothing but another order");

// One block of a column of activations: what Q8_0 says of it, ready to be multiplied.
struct Activations {
    float d;
    int32_t offset;  // -128 times the sum of its codes: takes back that tables are made unsigned
    int8_t codes[kBlock];
};

// rows: n_rows <= 16 rows of n_blocks blocks each; the group's other rows become zeros.
void interleave(const BlockQ4_0 * rows, int n_rows, int64_t n_blocks, TableGroup * group);

Activations activations(const BlockQ8_0 & block);

// y: (n_columns, 16), the products of 16 rows with n_columns <= kTile columns.
// group: n_blocks of them. x: block b of column c is x[b * x_stride + c]. In every block the sum is an
// integer; floats are summed in the order of the blocks, so all paths differ in roundings only.
using Multiply = void (*)(const TableGroup * group, const Table & table, const Activations * x,
                          int64_t x_stride, int64_t n_blocks, int n_columns, float * y);

enum class Path : uint8_t { portable, avx2, avx512_vnni, neon_dotprod };

bool has_path(Path path);  // whether this CPU can run it
Multiply multiply(Path path);
Multiply fastest_multiply();

}  // namespace pyquant::kernels
