#include "sample/truncate.h"

#include <limits>
#include <numeric>

namespace pyquant::sample {
namespace {

// Tokens of at least this weight, in the vocabulary's order.
std::vector<int32_t> at_least(const Weights & weights, float smallest) {
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
                if (values[l] >= smallest) {
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
    constexpr float none = std::numeric_limits<float>::min();  // weights below it are 0
    constexpr double slack = 1 + 1e-9;                         // sums in another order differ by less
    const float largest = weights.largest();
    for (float smallest = 0.25f; smallest > 1e-6f; smallest /= 4) {
        std::vector<int32_t> tokens = at_least(weights, std::max(none, smallest * largest));
        const bool enough = settings.top_k > 0 ? int64_t(tokens.size()) >= settings.top_k
                            : settings.top_p < 1
                                ? sum_of(tokens, weights) >= settings.top_p * weights.total * slack
                                : smallest <= settings.min_p;
        if (enough) {
            return tokens;
        }
    }
    return at_least(weights, none);
}

}  // namespace

std::vector<int32_t> truncate(const float * logits, const Weights & weights, const Settings & settings) {
    std::vector<int32_t> tokens = candidates(weights, settings);
    const auto before = [&](int32_t a, int32_t b) {
        return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    };
    const size_t top_k = size_t(settings.top_k > 0 ? settings.top_k : 0);
    if (top_k > 0 && top_k < tokens.size()) {
        std::partial_sort(tokens.begin(), tokens.begin() + std::ptrdiff_t(top_k), tokens.end(), before);
        tokens.resize(top_k);
    } else {
        std::sort(tokens.begin(), tokens.end(), before);
    }
    double total = weights.total;
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

}  // namespace pyquant::sample
