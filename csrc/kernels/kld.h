// Computes from logits how likely the tokens that came were, and how far two models are apart.
#pragma once

#include <cstdint>

namespace pyquant::kernels {

// logits: (n_rows, n_vocab); targets: (n_rows,), each in [0, n_vocab); nll: (n_rows,), in nats.
// nll[i] = log(sum_j exp(logits[i, j])) - logits[i, targets[i]], float32 exponentials summed in
// double as llama-perplexity does. Threads share the rows.
void negative_log_likelihood(const float * logits, int64_t n_rows, int64_t n_vocab, const int32_t * targets,
                             double * nll, int n_threads);

// Measures of what a model says after the same tokens as a base; all arrays (n_rows,).
struct Kld {
    double * nll;        // the model's, as above
    double * kld;        // sum_j p_base[j] (log p_base[j] - log p[j]), in nats
    uint8_t * same_top;  // whether both find the same token most likely
    double * overlap;    // sum_j min(p_base[j], p[j])
};

// base, logits: (n_rows, n_vocab); float32 exponentials and products, double sums.
void compare_logits(const float * base, const float * logits, int64_t n_rows, int64_t n_vocab,
                    const int32_t * targets, const Kld & out, int n_threads);

}  // namespace pyquant::kernels
