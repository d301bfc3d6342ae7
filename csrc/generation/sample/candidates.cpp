#include "generation/sample/candidates.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace pyquant::sample {

Candidates at_least(const float * logits, const Weights & weights, float smallest, float below) {
    Candidates tokens;
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
                    tokens.push_back({logits[begin + size_t(l)], int32_t(begin) + l});
                }
            }
        }
    }
    return tokens;
}

double sum_of(const Candidates & tokens, const Weights & weights) {
    return std::accumulate(tokens.begin(), tokens.end(), 0.0, [&](double sum, const Candidate & each) {
        return sum + double(weights.values[each.token]);
    });
}

float reached_by(size_t n, const Weights & weights) {
    if (n > weights.peaks.size()) {
        return 0;
    }
    std::vector<float> peaks = weights.peaks;
    const auto last = peaks.begin() + std::ptrdiff_t(n) - 1;
    std::nth_element(peaks.begin(), last, peaks.end(), std::greater<>());
    return *last;
}

}  // namespace pyquant::sample
