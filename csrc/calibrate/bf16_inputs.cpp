#include "calibrate/bf16_inputs.h"

#include <algorithm>

#include "calibrate/bf16_tile.h"
#include "kernels/half.h"

#if defined(__x86_64__) && __has_include(<avx512bf16intrin.h>)
#define PYQUANT_HAS_AVX512_BF16
#include "calibrate/bf16_tile_x86.h"
#endif

namespace pyquant::calibrate {

using namespace kernels;

namespace {

// Pairs of tokens whose products are summed up before they are added to the panel: few enough for a panel's
// columns of them to stay in L2, and so many that the panel is seldom read and written.
constexpr int64_t kPairsTogether = 256;

// This processor's function, or none.
MultiplyTile multiply_tile() {
#if defined(PYQUANT_HAS_AVX512_BF16)
    if (__builtin_cpu_supports("avx512bf16")) {
        return multiply_tile_avx512_bf16;
    }
#endif
    return nullptr;
}

uint32_t rounded_bits(float x) {
    const uint32_t bits = bits_of(x);
    return bits + 0x7fff + ((bits >> 16) & 1);  // the upper half is the BF16
}

void round_strip(const float * first, const float * second, int64_t n, uint32_t * pairs) {
    for (int64_t j = 0; j < n; ++j) {
        pairs[j] = (rounded_bits(first[j]) >> 16) | (rounded_bits(second[j]) & 0xffff0000);
    }
}

}  // namespace

bool Bf16Inputs::supported() {
    return multiply_tile() != nullptr;
}

void Bf16Inputs::resize(int64_t n, int64_t n_in) {
    n_in_ = n_in;
    n_pairs_ = (n + 1) / 2;
    pairs_.resize(size_t((n_in + kStrip - 1) / kStrip * kStrip * n_pairs_));
}

size_t Bf16Inputs::place(int64_t column, int64_t pair) const {
    return size_t((column / kStrip * n_pairs_ + pair) * kStrip + column % kStrip);
}

void Bf16Inputs::round(const Rows & rows, int64_t panel) {
    static constexpr float no_token[kStrip] = {};
    const int64_t end = std::min((panel + 1) * kPanel, n_in_);
    for (int64_t column = panel * kPanel; column < end; column += kStrip) {
        const int64_t width = std::min<int64_t>(kStrip, end - column);
        for (int64_t pair = 0; pair < n_pairs_; ++pair) {
            const float * first = rows.data + 2 * pair * rows.stride + column;
            const float * second = 2 * pair + 1 < rows.n ? first + rows.stride : no_token;
            uint32_t * pairs = &pairs_[place(column, pair)];
            round_strip(first, second, width, pairs);
            std::fill(pairs + width, pairs + kStrip, 0);
        }
    }
}

void Bf16Inputs::add_products(float weight, int64_t panel, float * at) const {
    static const MultiplyTile multiply = multiply_tile();
    const int64_t first = panel * kPanel, height = n_in_ - first, width = std::min(kPanel, height);
    for (int64_t pair = 0; pair < n_pairs_; pair += kPairsTogether) {
        const int64_t n_pairs = std::min(kPairsTogether, n_pairs_ - pair);
        for (int64_t row = 0; row < height; row += kTileRows) {
            const int64_t last_row = std::min<int64_t>(row + kTileRows, height) - 1;
            // Nothing is added above the diagonal.
            for (int64_t column = 0; column <= std::min(last_row, width - 1); column += kStrip) {
                for (int64_t i = row; i <= last_row; ++i) {
                    for (int64_t j = 0; j < kStrip; j += 16) {
                        __builtin_prefetch(at + i * width + column + j, 1);
                    }
                }
                Tile tile;
                multiply(&pairs_[place(first + row, pair)], &pairs_[place(first + column, pair)], n_pairs,
                         tile);
                for (int64_t i = row; i <= last_row; ++i) {
                    const int64_t n = std::min<int64_t>(kStrip, std::min(width, i + 1) - column);
                    for (int64_t j = 0; j < n; ++j) {
                        at[i * width + column + j] += weight * tile[i - row][j];
                    }
                }
            }
        }
    }
}

}  // namespace pyquant::calibrate
