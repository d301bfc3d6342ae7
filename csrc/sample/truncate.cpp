#include "sample/truncate.h"

#include <limits>
#include <numeric>
#include <utility>

namespace pyquant::sample {
namespace {

constexpr float kNone = std::numeric_limits<float>::min();  // weights below it are 0
constexpr float kLightest =
    1e-6f;                     // beside the largest: so light a weight is looked for before all are taken
constexpr size_t kFew = 4096;  // tokens that are quicker looked at one by one

constexpr int kMostAsked = 256;  // tokens that a keeper is asked about: some more take as long as a mask

// Tokens of at least this weight, but below another one, in the vocabulary's order.
std::vector<int32_t> at_least(const Weights & weights, float smallest,
                              float below = std::numeric_limits<float>::infinity()) {
    std::vector<int32_t> tokens;
    for (size_t g = 0; g < weights.peaks.size(); ++g) {
        if (weights.peaks[g] < smallest) {
            continue;
        }
        for (size_t begin = g * kGroup; begin < (g + 1) * kGroup; begin += kLanes) {
            const float * values = weights.values.get() + begin;
            unsigned any = 0;  // of so many tokens, that one by one are looked at only where it is worth it
            for (int l = 0; l < kLanes; ++l) {
                any |= unsigned(values[l] >= smallest);
            }
            for (int l = 0; any != 0 && l < kLanes; ++l) {
                if (values[l] >= smallest && values[l] < below) {
                    tokens.push_back(int32_t(begin) + l);
                }
            }
        }
    }
    return tokens;
}

double sum_of(const std::vector<int32_t> & tokens, const Weights & weights) {
    return std::accumulate(tokens.begin(), tokens.end(), 0.0,
                           [&](double sum, int32_t token) { return sum + double(weights.values[token]); });
}

// Tokens that hold all that will be left: as few as is cheap to find, for they have to be sorted.
std::vector<int32_t> candidates(const Weights & weights, const Settings & settings) {
    constexpr double slack = 1 + 1e-9;  // sums in another order differ by less
    const float largest = weights.largest();
    for (float smallest = 0.25f; smallest > kLightest; smallest /= 4) {
        std::vector<int32_t> tokens = at_least(weights, std::max(kNone, smallest * largest));
        const bool enough = settings.top_k > 0 ? int64_t(tokens.size()) >= settings.top_k
                            : settings.top_p < 1
                                ? sum_of(tokens, weights) >= settings.top_p * weights.total * slack
                                : smallest <= settings.min_p;
        if (enough) {
            return tokens;
        }
    }
    return at_least(weights, kNone);
}

// All tokens that a mask allows and that weigh anything; false: they are not few.
bool few(const Weights & weights, const int32_t * mask, std::vector<int32_t> & tokens) {
    size_t n = 0;
    for (int64_t w = 0; w < mask_words(weights.n_vocab); ++w) {
        for (auto word = uint32_t(mask[w]); word != 0; word &= word - 1) {
            const int32_t token = int32_t(w) * 32 + __builtin_ctz(word);
            if (++n > kFew) {
                return false;
            }
            if (token < weights.n_vocab && weights.values[token] >= kNone) {
                tokens.push_back(token);
            }
        }
    }
    return true;
}

// Orders tokens: the most likely first, of equally likely ones the first in the vocabulary.
auto order(const float * logits) {
    return [logits](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
}

// Tokens, the most likely first, without those that top-k, top-p and min-p leave out. total: of all weights.
std::vector<int32_t> cut(std::vector<int32_t> tokens, const float * logits, const Weights & weights,
                         const Settings & settings, double total) {
    const auto before = order(logits);
    const size_t top_k = size_t(settings.top_k > 0 ? settings.top_k : 0);
    if (top_k > 0 && top_k < tokens.size()) {
        std::partial_sort(tokens.begin(), tokens.begin() + std::ptrdiff_t(top_k), tokens.end(), before);
        tokens.resize(top_k);
    } else {
        std::sort(tokens.begin(), tokens.end(), before);
    }
    if (settings.top_k > 0) {
        total = sum_of(tokens, weights);
    }
    if (settings.top_p < 1) {
        double share = 0;
        size_t kept = 0;
        while (kept < tokens.size() && (kept == 0 || share < settings.top_p * total)) {
            share += double(weights.values[tokens[kept++]]);
        }
        tokens.resize(kept);
    }
    if (settings.min_p > 0 && !tokens.empty()) {
        const float smallest = settings.min_p * weights.values[tokens[0]];
        size_t kept = 1;
        while (kept < tokens.size() && weights.values[tokens[kept]] >= smallest) {
            ++kept;
        }
        tokens.resize(kept);
    }
    return tokens;
}

}  // namespace

std::vector<int32_t> truncate(const float * logits, const Weights & weights, const Settings & settings) {
    return cut(candidates(weights, settings), logits, weights, settings, weights.total);
}

std::vector<int32_t> truncate_asking(const float * logits, const Weights & weights, const Settings & settings,
                                     Keeper & keeper) {
    std::vector<int32_t> allowed;
    int n_asked = 0;
    const float largest = weights.largest();
    float below = std::numeric_limits<float>::infinity();
    for (float smallest = 0.25f; smallest > kLightest; smallest /= 4) {
        const float least = std::max(kNone, smallest * largest);
        std::vector<int32_t> tokens = at_least(weights, least, std::exchange(below, least));
        for (auto begin = tokens.begin(); begin != tokens.end();) {
            if (n_asked >= kMostAsked) {
                return {};
            }
            const auto n = std::min<ptrdiff_t>(tokens.end() - begin,
                                               std::max<ptrdiff_t>(8, settings.top_k - int(allowed.size())));
            std::partial_sort(begin, begin + n, tokens.end(), order(logits));
            std::for_each(begin, begin + n, [&](int32_t token) { keeper.expect(token); });
            for (const auto end = begin + n; begin != end; ++begin, ++n_asked) {
                if (!keeper.allows(*begin)) {
                    continue;
                }
                allowed.push_back(*begin);
                if (int64_t(allowed.size()) == settings.top_k) {
                    return cut(std::move(allowed), logits, weights, settings, 0);
                }
            }
        }
    }
    return {};
}

std::vector<int32_t> truncate_few(const float * logits, const Weights & weights, const Settings & settings,
                                  const int32_t * mask) {
    std::vector<int32_t> tokens;
    if (!few(weights, mask, tokens)) {
        return {};
    }
    return cut(std::move(tokens), logits, weights, settings, 0);
}

}  // namespace pyquant::sample
