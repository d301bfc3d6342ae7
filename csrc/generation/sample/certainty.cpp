#include "generation/sample/certainty.h"

#include <chrono>
#include <cmath>

#include "kernels/share_rows.h"

namespace pyquant::sample {
namespace {

// Entropy of weights w: log (S / peak) - sum w (x - largest) / S, where S is the sum of w, and a logit x as
// large as the largest that is allowed has the weight `peak`.
double entropy_of(const Weights & weights, const float * x, float largest, float peak) {
    float products[kTile];
    double sum = 0;
    for (size_t t = 0; t < weights.tiles.size(); ++t) {
        if (weights.tiles[t] == 0) {  // a mask refuses all of them, or they are far below the likeliest
            continue;
        }
        const int n = int(std::min<int64_t>(kTile, weights.n_vocab - int64_t(t) * kTile));
        for (int j = 0; j < n; ++j) {
            const size_t i = t * kTile + size_t(j);
            products[j] = weights.values[i] == 0 ? 0.0f : weights.values[i] * (x[i] - largest);
        }
        std::fill(products + n, products + kTile, 0.0f);
        sum += sum_of_tile(products);
    }
    return std::log(weights.total / double(peak)) - sum / weights.total;
}

}  // namespace

Certainty certainty(const Weights & weights, const float * logits, int32_t likeliest) {
    const auto begin = std::chrono::steady_clock::now();
    const float peak = weights.values[likeliest];
    const double entropy = entropy_of(weights, logits, logits[likeliest], peak);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    return {entropy, double(peak) / weights.total, 0, took.count()};
}

void entropy(const float * logits, int64_t n_rows, int64_t n_vocab, double * entropy, int n_threads) {
    kernels::share_rows(n_rows, n_threads, [&](int64_t begin, int64_t end) {
        Weights weights(n_vocab);
        for (int64_t row = begin; row < end; ++row) {
            const float * x = logits + row * n_vocab;
            const float largest = kernels::largest_of(x, n_vocab);
            weights.set(x, largest, 1.0f);
            entropy[row] = entropy_of(weights, x, largest, 1.0f);
        }
    });
}

}  // namespace pyquant::sample
