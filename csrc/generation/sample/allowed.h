// Weights of what a mask allows, in a scale that keeps their digits.
#pragma once

#include <algorithm>
#include <limits>

#include "generation/sample/weights.h"

namespace pyquant::sample {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// The weight, beside 1 for the most likely token of all, below which what a mask allows loses digits.
constexpr float kTooLight = 1e-26f;

// The largest logit that a mask allows; kNever where it allows none.
inline float largest_allowed(const float * logits, const int32_t * mask, int64_t n_vocab) {
    float largest = kNever;
    for (int64_t j = 0; j < n_vocab; ++j) {
        largest = allows(mask, j) ? std::max(largest, logits[j]) : largest;
    }
    return largest;
}

// Weighs the allowed tokens beside the likeliest of them where all are too light beside the likeliest of all.
// weights: at temperature 1, 0 where the mask refuses. Returns whether a token is allowed.
inline bool keep_digits(Weights & weights, const float * logits, const int32_t * mask) {
    if (weights.largest() >= kTooLight) {
        return true;
    }
    const float largest = largest_allowed(logits, mask, weights.n_vocab);
    if (largest == kNever) {
        return false;
    }
    weights.set(logits, largest, 1.0f, mask);
    return true;
}

}  // namespace pyquant::sample
