#include "sample/certainty.h"

#include <cmath>

#include "kernels/share_rows.h"
#include "sample/allowed.h"
#include "sample/weights.h"

namespace pyquant::sample {
namespace {

// Entropy of weights exp(x - largest): log S - sum w (x - largest) / S, where S is the sum of w.
double entropy_of(const Weights & weights, const float * x, float largest) {
    float products[kTile];
    double sum = 0;
    for (size_t t = 0; t < weights.tiles.size(); ++t) {
        if (weights.tiles[t] == 0) {  // a mask refuses all of them, or they are far below the likeliest
            continue;
        }
        const int n = int(std::min<int64_t>(kTile, weights.n_vocab - int64_t(t) * kTile));
        for (int j = 0; j < n; ++j) {
            products[j] = weights.values[t * kTile + size_t(j)] * (x[t * kTile + size_t(j)] - largest);
        }
        std::fill(products + n, products + kTile, 0.0f);
        sum += sum_of_tile(products);
    }
    return std::log(weights.total) - sum / weights.total;
}

}  // namespace

Certainty certainty(const float * logits, const int32_t * mask, int64_t n_vocab, int32_t token) {
    const float largest =
        mask == nullptr ? kernels::largest_of(logits, n_vocab) : largest_allowed(logits, mask, n_vocab);
    Weights weights(n_vocab);
    weights.set(logits, largest, 1.0f, mask);
    return {entropy_of(weights, logits, largest), 1 / weights.total,
            double(weights.values[size_t(token)]) / weights.total};
}

void entropy(const float * logits, int64_t n_rows, int64_t n_vocab, double * entropy, int n_threads) {
    kernels::share_rows(n_rows, n_threads, [&](int64_t begin, int64_t end) {
        Weights weights(n_vocab);
        for (int64_t row = begin; row < end; ++row) {
            const float * x = logits + row * n_vocab;
            const float largest = kernels::largest_of(x, n_vocab);
            weights.set(x, largest, 1.0f);
            entropy[row] = entropy_of(weights, x, largest);
        }
    });
}

}  // namespace pyquant::sample
