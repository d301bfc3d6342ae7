#include "kernels/scheme.h"

#include <cstring>

#include "kernels/block.h"
#include "kernels/grid.h"

namespace pyquant {
namespace {

template <Grid grid>
bool round_to_grid(const float * x, GridBlock & out) {
    return grid == Grid::q4_0 ? grid_q4_0(x, out) : grid_q8_0(x, out);
}

void store(const GridBlock & in, BlockQ4_0 & out) {
    constexpr int half = kBlock / 2;
    out.d = in.d;
    for (int j = 0; j < half; ++j) {
        out.codes[j] = uint8_t((in.codes[j] + 8) | (in.codes[j + half] + 8) << 4);
    }
}

void store(const GridBlock & in, BlockQ8_0 & out) {
    out.d = in.d;
    std::memcpy(out.codes, in.codes, kBlock);
}

template <Grid grid, class Block, bool folds>
int64_t encode_blocks(const Scheme & scheme, const float * x, int64_t n_blocks, Block * out) {
    GridBlock block;
    for (int64_t i = 0; i < n_blocks; ++i) {
        if (!round_to_grid<grid>(x + i * kBlock, block)) {
            return i;
        }
        if constexpr (folds) {
            for (int8_t & code : block.codes) {
                code = scheme.value[uint8_t(code)];
            }
        }
        store(block, out[i]);
    }
    return n_blocks;
}

template <Grid grid, class Block>
int64_t encode_blocks(const Scheme & scheme, const float * x, int64_t n_blocks, void * out) {
    bool folds = false;
    for (int code = 0; code < 256; ++code) {
        folds |= scheme.value[code] != int8_t(code);
    }
    Block * blocks = static_cast<Block *>(out);
    return folds ? encode_blocks<grid, Block, true>(scheme, x, n_blocks, blocks)
                 : encode_blocks<grid, Block, false>(scheme, x, n_blocks, blocks);
}

template <Grid grid>
int64_t encode_grid(const Scheme & scheme, const float * x, int64_t n_blocks, void * out) {
    return scheme.container == Container::q4_0
               ? encode_blocks<grid, BlockQ4_0>(scheme, x, n_blocks, out)
               : encode_blocks<grid, BlockQ8_0>(scheme, x, n_blocks, out);
}

void decode_block(const BlockQ4_0 & block, float * x) {
    constexpr int half = kBlock / 2;
    const float d = half_to_float(block.d);
    for (int j = 0; j < half; ++j) {
        x[j] = float(int(block.codes[j] & 15) - 8) * d;
        x[j + half] = float(int(block.codes[j] >> 4) - 8) * d;
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

int64_t container_bytes(Container container, int64_t n_blocks) {
    return n_blocks * int64_t(container == Container::q4_0 ? sizeof(BlockQ4_0) : sizeof(BlockQ8_0));
}

int64_t encode(const Scheme & scheme, const float * x, int64_t n_blocks, void * blocks) {
    return scheme.grid == Grid::q4_0 ? encode_grid<Grid::q4_0>(scheme, x, n_blocks, blocks)
                                     : encode_grid<Grid::q8_0>(scheme, x, n_blocks, blocks);
}

void fold_q4_0(const Scheme & scheme, void * blocks, int64_t n_blocks) {
    uint8_t folded[256];  // both nibbles of a byte at once
    for (int byte = 0; byte < 256; ++byte) {
        const uint8_t low = uint8_t(scheme.value[uint8_t((byte & 15) - 8)] + 8);
        const uint8_t high = uint8_t(scheme.value[uint8_t((byte >> 4) - 8)] + 8);
        folded[byte] = uint8_t(low | high << 4);
    }
    for (int64_t i = 0; i < n_blocks; ++i) {
        for (uint8_t & byte : static_cast<BlockQ4_0 *>(blocks)[i].codes) {
            byte = folded[byte];
        }
    }
}

void decode(Container container, const void * blocks, int64_t n_blocks, float * x) {
    container == Container::q4_0 ? decode_blocks<BlockQ4_0>(blocks, n_blocks, x)
                                 : decode_blocks<BlockQ8_0>(blocks, n_blocks, x);
}

}  // namespace pyquant
