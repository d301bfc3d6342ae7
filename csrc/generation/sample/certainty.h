// How sure a distribution of tokens is: what decides whether a draft goes on.
#pragma once

#include <cstdint>

#include "generation/sample/weights.h"

namespace pyquant::sample {

// Of a row, at temperature 1, of the tokens that a mask allows.
struct Certainty {
    double entropy;  // nats
    double top_p;    // probability of the most likely token
    double token_p;  // probability of the token that was drawn
    double seconds;  // that it took to know this, beside the draw
};

// Knows all but token_p, which stays 0. weights: at temperature 1, of the tokens that are allowed;
// likeliest: one of these.
Certainty certainty(const Weights & weights, const float * logits, int32_t likeliest);

// entropy: (n_rows,), of the distribution of all tokens at temperature 1, in nats.
void entropy(const float * logits, int64_t n_rows, int64_t n_vocab, double * entropy, int n_threads);

}  // namespace pyquant::sample
