// From logits to the negative log-likelihood of the tokens that came.
#pragma once

#include <cstdint>

namespace pyquant {

// logits: (n_rows, n_vocab); targets: (n_rows,), each in [0, n_vocab); nll: (n_rows,), in nats.
// nll[i] = log(sum_j exp(logits[i, j])) - logits[i, targets[i]], float32 exponentials summed in
// double as llama-perplexity does. Threads share the rows.
void negative_log_likelihood(const float * logits, int64_t n_rows, int64_t n_vocab,
                             const int32_t * targets, double * nll, int n_threads);

}  // namespace pyquant
