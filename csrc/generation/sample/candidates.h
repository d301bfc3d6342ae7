// Tokens that truncation may leave, the likeliest first.
#pragma once

#include <limits>
#include <vector>

#include "generation/sample/weights.h"

namespace pyquant::sample {

constexpr float kNone = std::numeric_limits<float>::min();  // weights below it are 0
constexpr float kLightest =
    1e-6f;  // beside the largest: so light a weight is looked for before all are taken

// A token that may be left. They are ordered: the likeliest first, of equally likely ones the first in the
// vocabulary.
struct Candidate {
    float logit;  // beside its token, as to sort by what lies elsewhere takes longer
    int32_t token;

    bool operator<(const Candidate & other) const {
        return logit != other.logit ? logit > other.logit : token < other.token;
    }
};
using Candidates = std::vector<Candidate>;

// Tokens of at least this weight, but below another one, in the vocabulary's order.
Candidates at_least(const float * logits, const Weights & weights, float smallest,
                    float below = std::numeric_limits<float>::infinity());

// A weight that at least n tokens reach: those of n groups do that are likeliest. 0: there are fewer groups.
float reached_by(size_t n, const Weights & weights);

// The sum of their weights, from the first to the last.
double sum_of(const Candidates & tokens, const Weights & weights);

}  // namespace pyquant::sample
