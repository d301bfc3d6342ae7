// A row of logits as weights exp(logit - largest), and their sums in an order that numpy can repeat.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/softmax.h"

namespace pyquant::sample {

using kernels::kLanes;
using kernels::kMaxima;
constexpr int kTile = 512;   // weights of a tile are summed together; a draw looks for its tile first
constexpr int kGroup = 256;  // of which the largest weight is kept: most groups have no likely token

// Factor of logits; finite, as 0 times infinity is no number.
inline float scale_of(float temperature) {
    return std::min(1.0f / temperature, std::numeric_limits<float>::max());
}

// Lanes first, each from top to bottom; then from the first lane to the last.
inline double sum_of_tile(const float * tile) {
    double lanes[kLanes] = {};
    for (int j = 0; j < kTile; j += kLanes) {
        for (int l = 0; l < kLanes; ++l) {
            lanes[l] += double(tile[j + l]);
        }
    }
    double sum = 0;
    for (const double lane : lanes) {
        sum += lane;
    }
    return sum;
}

// The largest of a whole group: no compiler has to wonder about a rest.
inline float largest_of_group(const float * group) {
    float lanes[kMaxima] = {};
    for (int j = 0; j < kGroup; j += kMaxima) {
        for (int l = 0; l < kMaxima; ++l) {
            lanes[l] = group[j + l] > lanes[l] ? group[j + l] : lanes[l];
        }
    }
    return kernels::largest_lane(lanes);
}

// Weights of a vocabulary, a whole number of tiles of them: those after the vocabulary's end are 0.
struct Weights {
    int64_t n_vocab;
    std::unique_ptr<float[]> values;
    std::vector<double> tiles;  // sum of each tile
    std::vector<float> peaks;   // largest weight of each group
    double total = 0;           // sum of tiles, from the first to the last

    explicit Weights(int64_t n_vocab)
        : n_vocab(n_vocab),
          tiles(size_t((n_vocab + kTile - 1) / kTile)),
          peaks(tiles.size() * (kTile / kGroup)) {
        // Fills only what `set` leaves alone: to fill all of it would take a tenth of a draw's time.
        values.reset(new float[tiles.size() * kTile]);
        std::fill(values.get() + n_vocab, values.get() + tiles.size() * kTile, 0.0f);
    }

    // values[j] = exp((x[j] - largest) / temperature); with a mask, of the tokens that it refuses 0.
    void set(const float * x, float largest, float temperature, const int32_t * mask = nullptr) {
        const float scale = scale_of(temperature);
        const auto weigh = [&](int64_t begin, int n, float * weights) {
            for (int j = 0; j < n; ++j) {
                weights[j] = kernels::exp_nonpositive((std::min(x[begin + j], largest) - largest) * scale);
            }
        };
        each_tile(mask, [&](int64_t begin, int n, float * tile) {
            if (mask == nullptr) {
                weigh(begin, n, tile);
                return;
            }
            for (int j = 0; j < n; j += 32) {
                if (mask[(begin + j) / 32] != 0) {
                    weigh(begin + j, std::min(32, n - j), tile + j);
                }
            }
            keep_of_tile(mask, begin, n, tile);
        });
    }

    // Makes the weights of tokens that the mask refuses 0.
    void keep(const int32_t * mask) {
        each_tile(mask, [&](int64_t begin, int n, float * tile) { keep_of_tile(mask, begin, n, tile); });
    }

    float largest() const { return *std::max_element(peaks.begin(), peaks.end()); }

private:
    static void keep_of_tile(const int32_t * mask, int64_t begin, int n, float * tile) {
        for (int j = 0; j < kTile; j += 32) {
            const uint32_t word = j < n ? uint32_t(mask[(begin + j) / 32]) : 0;
            for (int b = 0; b < 32; ++b) {
                tile[j + b] = (word >> b) & 1 ? tile[j + b] : 0.0f;
            }
        }
    }

    // A tile of which the mask refuses all is passed over: its sum is 0, and nobody reads its values.
    template <class Change>
    void each_tile(const int32_t * mask, const Change & change) {
        constexpr int groups = kTile / kGroup;
        total = 0;
        for (size_t t = 0; t < tiles.size(); ++t) {
            const int64_t begin = int64_t(t) * kTile;
            const int n = int(std::min<int64_t>(kTile, n_vocab - begin));
            if (mask != nullptr && refuses_all(mask + begin / 32, (n + 31) / 32)) {
                tiles[t] = 0;
                std::fill_n(peaks.begin() + ptrdiff_t(t) * groups, groups, 0.0f);
                continue;
            }
            float * tile = values.get() + t * kTile;
            change(begin, n, tile);
            tiles[t] = sum_of_tile(tile);
            total += tiles[t];
            for (int g = 0; g < groups; ++g) {
                peaks[t * groups + size_t(g)] = largest_of_group(tile + g * kGroup);
            }
        }
    }

    static bool refuses_all(const int32_t * words, int n) {
        int32_t any = 0;
        for (int i = 0; i < n; ++i) {
            any |= words[i];
        }
        return any == 0;
    }
};

// Words of a mask of n_vocab tokens.
inline int64_t mask_words(int64_t n_vocab) {
    return (n_vocab + 31) / 32;
}

inline bool allows(const int32_t * mask, int64_t token) {
    return (uint32_t(mask[token / 32]) >> (token % 32)) & 1;
}

}  // namespace pyquant::sample
