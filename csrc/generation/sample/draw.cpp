#include "generation/sample/draw.h"

#include <cmath>
#include <limits>

#include "generation/sample/allowed.h"
#include "generation/sample/ask.h"
#include "generation/sample/certainty.h"
#include "generation/sample/philox.h"
#include "generation/sample/truncate.h"
#include "generation/sample/weights.h"
#include "kernels/share_rows.h"

namespace pyquant::sample {
namespace {

// The first token at which the sum of weights exceeds `uniform` of the total.
int32_t invert(const Weights & weights, double uniform) {
    double wanted = uniform * weights.total;
    size_t tile = 0;
    while (tile + 1 < weights.tiles.size() && weights.tiles[tile] <= wanted) {
        wanted -= weights.tiles[tile++];
    }
    // Rounding may leave `wanted` at or beyond the end of the last tile that has any weight.
    while (tile > 0 && weights.tiles[tile] == 0) {
        --tile;
    }
    const float * values = weights.values.get() + tile * kTile;
    double sum = 0;
    int last = 0;
    for (int j = 0; j < kTile; ++j) {
        if (values[j] > 0) {
            last = j;
            sum += double(values[j]);
            if (sum > wanted) {
                break;
            }
        }
    }
    return int32_t(tile) * kTile + last;
}

int32_t invert(const std::vector<int32_t> & tokens, const std::vector<float> & weights, double uniform) {
    double total = 0;
    for (const float weight : weights) {
        total += double(weight);
    }
    double sum = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
        sum += double(weights[i]);
        if (sum > uniform * total) {
            return tokens[i];
        }
    }
    return tokens.back();
}

// Room for a row's work; a thread has one.
class Drawer {
public:
    Drawer(int64_t n_vocab, const Settings & settings) : settings_(settings), weights_(n_vocab) {}

    Row operator()(const float * logits, const int32_t * mask, double uniform, Sums & sums,
                   Certainty * sure = nullptr) {
        const float largest = kernels::largest_of(logits, weights_.n_vocab);
        weights_.set(logits, largest, 1.0f);
        sums = {double(largest), weights_.total};
        plain_ = mask == nullptr;
        if (mask != nullptr) {
            weights_.keep(mask);
        }
        return of_allowed(logits, mask, uniform, sums, sure);
    }

    // The same with top-k and a mask, but for the share that it leaves. It is made where it is needed.
    Row kept(const float * logits, Keeper & keeper, double uniform, Sums & sums,
             std::vector<int32_t> & mask) {
        const float largest = kernels::largest_of(logits, weights_.n_vocab);
        weights_.set(logits, largest, 1.0f);
        sums = {double(largest), weights_.total};
        if (is_finite(sums)) {
            if (const int32_t token = draw_asking(logits, weights_, settings_, keeper, uniform); token >= 0) {
                return row_of(token, logits, sums, 1);
            }
            mask.resize(size_t(mask_words(weights_.n_vocab)));
            keeper.mask(mask.data());
            const auto tokens = truncate_few(logits, weights_, settings_, mask.data());
            if (!tokens.empty() && weights_.values[tokens[0]] >= kTooLight) {
                return row_of(among(logits, tokens, uniform), logits, sums, 1);
            }
            weights_.keep(mask.data());
        }
        return of_allowed(logits, mask.data(), uniform, sums);
    }

    // The same as `again` for the row that was drawn from last, without a mask.
    Row refused(const float * logits, const int32_t * mask, double uniform, const Sums & sums) {
        if (!plain_) {
            return again(logits, mask, uniform, sums);
        }
        plain_ = false;
        weights_.keep(mask);
        return of_allowed(logits, mask, uniform, sums);
    }

    // The same with a mask, of a row whose sums are known already: only tokens that it allows are weighed.
    Row again(const float * logits, const int32_t * mask, double uniform, const Sums & sums) {
        plain_ = false;
        weights_.set(logits, float(sums.largest), 1.0f, mask);
        return of_allowed(logits, mask, uniform, sums);
    }

private:
    // weights_ are those of the tokens that the mask allows, at temperature 1.
    Row of_allowed(const float * logits, const int32_t * mask, double uniform, const Sums & sums,
                   Certainty * sure = nullptr) {
        if (!is_finite(sums)) {
            return {0, std::numeric_limits<double>::quiet_NaN(), 1};
        }
        const double allowed = weights_.total / sums.total;
        if (!keep_digits(weights_, logits, mask)) {
            return {-1, 0, allowed};
        }
        if (sure == nullptr) {
            return row_of(choose(logits, mask, uniform), logits, sums, allowed);
        }
        const int32_t likeliest = most_likely(logits);
        *sure = certainty(weights_, logits, likeliest);  // before a temperature changes the weights
        const Row row = row_of(choose(logits, mask, uniform), logits, sums, allowed);
        sure->token_p = sure->top_p * double(kernels::exp_nonpositive(logits[row.token] - logits[likeliest]));
        return row;
    }

    static bool is_finite(const Sums & sums) {
        return std::isfinite(sums.largest) && std::isfinite(sums.total);
    }

    static Row row_of(int32_t token, const float * logits, const Sums & sums, double allowed) {
        return {token, double(logits[token]) - (std::log(sums.total) + sums.largest), allowed};
    }

    // weights_ are those at temperature 1.
    int32_t choose(const float * logits, const int32_t * mask, double uniform) {
        if (settings_.temperature == 0) {
            return most_likely(logits);
        }
        if (!settings_.truncates()) {
            if (settings_.temperature != 1) {
                plain_ = false;
                weights_.set(logits, logits[most_likely(logits)], settings_.temperature, mask);
            }
            return invert(weights_, uniform);
        }
        return among(logits, truncate(logits, weights_, settings_), uniform);
    }

    // What is left by truncation, the most likely first.
    int32_t among(const float * logits, const std::vector<int32_t> & tokens, double uniform) const {
        std::vector<float> weights;
        const float scale = scale_of(settings_.temperature);
        for (const int32_t token : tokens) {
            weights.push_back(kernels::exp_nonpositive((logits[token] - logits[tokens[0]]) * scale));
        }
        return invert(tokens, weights, uniform);
    }

    // The largest logit of the largest weight, for two logits may have one weight; then the first.
    int32_t most_likely(const float * logits) const {
        const float largest = weights_.largest();
        int32_t best = -1;
        for (size_t g = 0; g < weights_.peaks.size(); ++g) {
            for (int j = 0; weights_.peaks[g] == largest && j < kGroup; ++j) {
                const int32_t token = int32_t(g) * kGroup + j;
                if (weights_.values[token] == largest && (best < 0 || logits[token] > logits[best])) {
                    best = token;
                }
            }
        }
        return best;
    }

    Settings settings_;
    Weights weights_;
    bool plain_ = false;  // they are those of the whole vocabulary at temperature 1
};

}  // namespace

void draw(const float * logits, const int32_t * mask, int64_t n_rows, int64_t n_vocab,
          const Settings & settings, const double * uniform, const Drawn & drawn, int n_threads) {
    kernels::share_rows(n_rows, n_threads, [&](int64_t begin, int64_t end) {
        Drawer drawer(n_vocab, settings);
        for (int64_t row = begin; row < end; ++row) {
            const int32_t * allowed = mask == nullptr ? nullptr : mask + row * mask_words(n_vocab);
            drawn.set(row, drawer(logits + row * n_vocab, allowed, uniform[row], drawn.sums[row]));
        }
    });
}

Row draw_sure(const float * logits, const int32_t * mask, int64_t n_vocab, const Settings & settings,
              double uniform, Certainty & sure) {
    Sums sums;
    sure = {};
    return Drawer(n_vocab, settings)(logits, mask, uniform, sums, &sure);
}

void draw_again(const float * logits, const int64_t * rows, const Sums * sums, const int32_t * mask,
                int64_t n_rows, int64_t n_vocab, const Settings & settings, const double * uniform,
                const Drawn & drawn) {
    Drawer drawer(n_vocab, settings);
    for (int64_t i = 0; i < n_rows; ++i) {
        const float * row = logits + rows[i] * n_vocab;
        drawn.sums[i] = sums[rows[i]];
        drawn.set(i, drawer.again(row, mask + i * mask_words(n_vocab), uniform[i], drawn.sums[i]));
    }
}

void draw_kept(const float * logits, int64_t n_rows, int64_t n_vocab, const Settings & settings,
               const Place * places, Keeper & keeper, const Drawn & drawn) {
    Drawer drawer(n_vocab, settings);
    const bool masked = settings.truncates() && settings.temperature > 0;
    std::vector<int32_t> mask;
    for (int64_t i = 0; i < n_rows; ++i) {
        const float * row = logits + i * n_vocab;
        const auto number = [&](uint64_t attempt) {
            return uniform(places[i].seed, places[i].sample, places[i].position, attempt);
        };
        Sums & sums = drawn.sums[i];
        keeper.turn_to(i);
        Row chosen =
            masked ? drawer.kept(row, keeper, number(0), sums, mask) : drawer(row, nullptr, number(0), sums);
        if (chosen.token >= 0 && std::isfinite(chosen.log_p) && !keeper.take(chosen.token)) {
            mask.resize(size_t(mask_words(n_vocab)));
            keeper.mask(mask.data());
            chosen = drawer.refused(row, mask.data(), number(1), sums);
            if (chosen.token >= 0) {
                keeper.take(chosen.token);
            }
        }
        drawn.set(i, chosen);
    }
}

}  // namespace pyquant::sample
