#include "kernels/scheme.h"

#include <cstring>
#include <type_traits>

#include "kernels/block.h"
#include "kernels/block_scale.h"

namespace pyquant::kernels {
namespace {

constexpr int kHalf = kBlock / 2;

template <Grid grid>
bool round_to_grid(const float * x, GridBlock & out) {
    return grid == Grid::q4_0 ? grid_q4_0(x, out) : grid_q8_0(x, out);
}

// Bytes may alias anything, so loops over them run on local copies: else no compiler vectorizes.
// codes[j] + shift: 0..15.
void store_nibbles(const GridBlock & in, int shift, BlockQ4_0 & out) {
    uint8_t codes[kHalf];
    for (int j = 0; j < kHalf; ++j) {
        codes[j] = uint8_t((in.codes[j] + shift) | (in.codes[j + kHalf] + shift) << 4);
    }
    out.d = in.d;
    std::memcpy(out.codes, codes, kHalf);
}

void store(const GridBlock & in, BlockQ4_0 & out) {
    store_nibbles(in, 8, out);
}

void store(const GridBlock & in, BlockQ8_0 & out) {
    out.d = in.d;
    std::memcpy(out.codes, in.codes, kBlock);
}

// The codes, 0..15, as the values of a grid.
void look_up(const Table & table, const BlockQ4_0 & in, GridBlock & out) {
    out.d = in.d;
    for (int j = 0; j < kHalf; ++j) {
        out.codes[j] = table[in.codes[j] & 15];
        out.codes[j + kHalf] = table[in.codes[j] >> 4];
    }
}

template <Grid grid, class Block>
int64_t encode_blocks(const float * x, int64_t n_blocks, void * blocks) {
    GridBlock block;
    for (int64_t i = 0; i < n_blocks; ++i) {
        if (!round_to_grid<grid>(x + i * kBlock, block)) {
            return i;
        }
        store(block, static_cast<Block *>(blocks)[i]);
    }
    return n_blocks;
}

// Folds first: the codes of a grid may not fit into nibbles.
template <Grid grid>
int64_t encode_table(const Scheme & scheme, const float * x, int64_t n_blocks, BlockQ4_0 * blocks) {
    GridBlock block;
    for (int64_t i = 0; i < n_blocks; ++i) {
        if (!round_to_grid<grid>(x + i * kBlock, block)) {
            return i;
        }
        for (int8_t & code : block.codes) {
            code = scheme.value[uint8_t(code)];
        }
        store_nibbles(block, 0, blocks[i]);
    }
    return n_blocks;
}

template <Grid grid>
int64_t encode_grid(const Scheme & scheme, const float * x, int64_t n_blocks, void * blocks) {
    if (scheme.storage == Storage::q4_t) {
        return encode_table<grid>(scheme, x, n_blocks, static_cast<BlockQ4_0 *>(blocks));
    }
    const int64_t n_encoded = scheme.storage == Storage::q4_0
                                  ? encode_blocks<grid, BlockQ4_0>(x, n_blocks, blocks)
                                  : encode_blocks<grid, BlockQ8_0>(x, n_blocks, blocks);
    fold(scheme, blocks, n_encoded);
    return n_encoded;
}

bool folds(const Scheme & scheme) {
    if (scheme.storage == Storage::q4_t) {
        return true;
    }
    const bool q4_0 = scheme.grid == Grid::q4_0;
    for (int code = q4_0 ? -8 : -127; code <= (q4_0 ? 7 : 127); ++code) {
        if (scheme.value[uint8_t(code)] != code) {
            return true;
        }
    }
    return false;
}

template <class Block>
void replace_bytes(const uint8_t (&replacement)[256], void * blocks, int64_t n_blocks) {
    for (int64_t i = 0; i < n_blocks; ++i) {
        for (auto & byte : static_cast<Block *>(blocks)[i].codes) {
            byte = static_cast<std::remove_reference_t<decltype(byte)>>(replacement[uint8_t(byte)]);
        }
    }
}

void decode_block(const BlockQ4_0 & block, float * x) {
    const float d = half_to_float(block.d);
    int8_t codes[kBlock];
    for (int j = 0; j < kHalf; ++j) {
        codes[j] = int8_t((block.codes[j] & 15) - 8);
        codes[j + kHalf] = int8_t((block.codes[j] >> 4) - 8);
    }
    for (int j = 0; j < kBlock; ++j) {
        x[j] = float(codes[j]) * d;
    }
}

void decode_block(const BlockQ8_0 & block, float * x) {
    const float d = half_to_float(block.d);
    for (int j = 0; j < kBlock; ++j) {
        x[j] = float(block.codes[j]) * d;
    }
}

template <class Block>
void decode_blocks(const void * blocks, int64_t n_blocks, float * x) {
    for (int64_t i = 0; i < n_blocks; ++i) {
        decode_block(static_cast<const Block *>(blocks)[i], x + i * kBlock);
    }
}

}  // namespace

int64_t storage_bytes(Storage storage, int64_t n_blocks) {
    return n_blocks * int64_t(storage == Storage::q8_0 ? sizeof(BlockQ8_0) : sizeof(BlockQ4_0));
}

int64_t encode(const Scheme & scheme, const float * x, int64_t n_blocks, void * blocks) {
    return scheme.grid == Grid::q4_0 ? encode_grid<Grid::q4_0>(scheme, x, n_blocks, blocks)
                                     : encode_grid<Grid::q8_0>(scheme, x, n_blocks, blocks);
}

void fold(const Scheme & scheme, void * blocks, int64_t n_blocks) {
    if (!folds(scheme)) {
        return;
    }
    const int shift = scheme.storage == Storage::q4_0 ? 8 : 0;
    uint8_t folded[256];
    for (int byte = 0; byte < 256; ++byte) {
        const auto nibble = [&](int code) { return uint8_t(scheme.value[uint8_t(code - 8)] + shift); };
        folded[byte] = scheme.storage == Storage::q8_0 ? uint8_t(scheme.value[byte])
                                                       : uint8_t(nibble(byte & 15) | nibble(byte >> 4) << 4);
    }
    scheme.storage == Storage::q8_0 ? replace_bytes<BlockQ8_0>(folded, blocks, n_blocks)
                                    : replace_bytes<BlockQ4_0>(folded, blocks, n_blocks);
}

void decode(Storage stock, const void * blocks, int64_t n_blocks, float * x) {
    stock == Storage::q4_0 ? decode_blocks<BlockQ4_0>(blocks, n_blocks, x)
                           : decode_blocks<BlockQ8_0>(blocks, n_blocks, x);
}

void decode_table(const Table & table, const BlockQ4_0 * blocks, int64_t n_blocks, float * x) {
    GridBlock block;
    for (int64_t i = 0; i < n_blocks; ++i, x += kBlock) {
        look_up(table, blocks[i], block);
        const float d = half_to_float(block.d);
        for (int j = 0; j < kBlock; ++j) {
            x[j] = float(block.codes[j]) * d;
        }
    }
}

void expand(const Table & table, Storage stock, const BlockQ4_0 * blocks, int64_t n_blocks, void * out) {
    GridBlock block;
    for (int64_t i = 0; i < n_blocks; ++i) {
        look_up(table, blocks[i], block);
        stock == Storage::q4_0 ? store(block, static_cast<BlockQ4_0 *>(out)[i])
                               : store(block, static_cast<BlockQ8_0 *>(out)[i]);
    }
}

}  // namespace pyquant::kernels
