// How sure a distribution of tokens is: what decides whether a draft goes on.
#pragma once

#include <cstdint>

namespace pyquant::sample {

// Of a row, at temperature 1, of the tokens that a mask allows.
struct Certainty {
    double entropy;  // nats
    double top_p;    // probability of the most likely token
    double token_p;  // probability of the token that was asked for
};

// logits: (n_vocab,); mask: (ceil(n_vocab / 32),) or null; token: allowed, and at least one is.
Certainty certainty(const float * logits, const int32_t * mask, int64_t n_vocab, int32_t token);

// entropy: (n_rows,), of the distribution of all tokens at temperature 1, in nats.
void entropy(const float * logits, int64_t n_rows, int64_t n_vocab, double * entropy, int n_threads);

}  // namespace pyquant::sample
