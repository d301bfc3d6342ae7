// A scheme turns weights into codes: a grid, and for every grid code the int8 value it is folded to.
// Blocks of its storage hold those values. Q4_0, recentred, multi-zero and every Q8_0-to-4-bit table
// differ only in this data.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/block.h"

namespace pyquant::kernels {

enum class Grid : uint8_t { q4_0, q8_0 };

// The type of block that holds codes.
enum class Storage : uint8_t {
    q4_0,  // nibbles of value + 8: values in -8..7
    q8_0,  // int8 values
    q4_t,  // nibbles that are codes: indices of a table
};

struct Scheme {
    Grid grid;
    Storage storage;
    std::array<int8_t, 256> value;  // [uint8(grid code)]; of Q4_T blocks the code of the value
    Table table;                    // of Q4_T blocks, what the codes stand for
};

int64_t storage_bytes(Storage storage, int64_t n_blocks);

// Encodes n_blocks * 32 weights. Returns n_blocks, or the index of the first block that has no
// encoding: an infinity or a NaN in it, or a scale beyond fp16.
int64_t encode(const Scheme & scheme, const float * x, int64_t n_blocks, void * blocks);

// Folds the codes of blocks that hold grid codes, such as those that another search has filled; into
// Q4_T only from the grid of Q4_0, whose codes are nibbles too.
void fold(const Scheme & scheme, void * blocks, int64_t n_blocks);

void decode(Storage stock, const void * blocks, int64_t n_blocks, float * x);

void decode_table(const Table & table, const BlockQ4_0 * blocks, int64_t n_blocks, float * x);

// Turns Q4_T blocks into blocks of the stock type that holds their values; scales stay what they are.
void expand(const Table & table, Storage stock, const BlockQ4_0 * blocks, int64_t n_blocks, void * out);

}  // namespace pyquant::kernels
