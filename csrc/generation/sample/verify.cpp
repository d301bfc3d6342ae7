#include "generation/sample/verify.h"

#include <cmath>
#include <limits>

#include "generation/sample/allowed.h"
#include "generation/sample/truncate.h"
#include "generation/sample/weights.h"

namespace pyquant::sample {
namespace {

// A distribution over the vocabulary, as `draw` draws from it.
struct Distribution {
    std::vector<float> values;  // unscaled probabilities; 0 of what a mask or truncation leaves out
    double total = 0;
    Sums sums{};  // of all tokens

    // Returns whether there is a token to draw.
    bool set(const float * logits, const int32_t * mask, int64_t n_vocab, const Settings & settings) {
        Weights weights(n_vocab);
        const float largest = kernels::largest_of(logits, n_vocab);
        weights.set(logits, largest, 1.0f);
        sums = {double(largest), weights.total};
        if (!std::isfinite(sums.largest) || !std::isfinite(sums.total)) {
            return false;
        }
        if (mask != nullptr) {
            weights.keep(mask);
            if (!keep_digits(weights, logits, mask)) {
                return false;
            }
        }
        if (settings.truncates()) {
            set_truncated(logits, weights, settings);
            return true;
        }
        if (settings.temperature != 1) {
            const float of_allowed = mask == nullptr ? largest : largest_allowed(logits, mask, n_vocab);
            weights.set(logits, of_allowed, settings.temperature, mask);
        }
        values.assign(size_t(n_vocab), 0.0f);
        for (size_t t = 0; t < weights.tiles.size(); ++t) {
            const size_t begin = t * kTile, end = std::min(begin + kTile, size_t(n_vocab));
            if (weights.tiles[t] > 0) {  // else a mask may have left it unwritten
                std::copy(&weights.values[begin], &weights.values[begin] + (end - begin), &values[begin]);
            }
        }
        total = weights.total;
        return true;
    }

    void set_truncated(const float * logits, const Weights & weights, const Settings & settings) {
        const std::vector<int32_t> tokens = truncate(logits, weights, settings);
        const float scale = scale_of(settings.temperature);
        values.assign(size_t(weights.n_vocab), 0.0f);
        total = 0;
        for (const int32_t token : tokens) {
            const float weight = kernels::exp_nonpositive((logits[token] - logits[tokens[0]]) * scale);
            values[size_t(token)] = weight;
            total += double(weight);
        }
    }

    double p(int32_t token) const { return double(values[size_t(token)]) / total; }
};

// The first token at which the sum of shares exceeds `uniform` of the total; -1 where all are 0.
int32_t invert(const std::vector<double> & shares, double uniform) {
    double total = 0;
    for (const double share : shares) {
        total += share;
    }
    double sum = 0;
    int32_t last = -1;
    for (size_t j = 0; j < shares.size(); ++j) {
        if (shares[j] > 0) {
            last = int32_t(j);
            sum += shares[j];
            if (sum > uniform * total) {
                break;
            }
        }
    }
    return last;
}

// Draws from what the target has more of than the draft: max(p - q, 0). q is null: all of it for `token`.
int32_t draw_rest(const Distribution & p, const Distribution * q, int32_t token, double uniform) {
    std::vector<double> shares(p.values.size());
    for (size_t j = 0; j < shares.size(); ++j) {
        const double of_draft = q != nullptr ? double(q->values[j]) / q->total : 0.0;
        shares[j] = std::max(0.0, double(p.values[j]) / p.total - of_draft);
    }
    if (q == nullptr) {
        shares[size_t(token)] = 0;
    }
    return invert(shares, uniform);
}

}  // namespace

Verified verify(const float * target, const float * draft, const int32_t * mask, int64_t n_vocab,
                const Settings & settings, int32_t token, const double * uniform) {
    Distribution p, q;
    if (!p.set(target, mask, n_vocab, settings) ||
        (draft != nullptr && !q.set(draft, mask, n_vocab, settings))) {
        return {false, 0, std::numeric_limits<double>::quiet_NaN()};
    }
    const bool accepted = uniform[0] * (draft != nullptr ? q.p(token) : 1.0) < p.p(token);
    if (!accepted) {
        const int32_t other = draw_rest(p, draft != nullptr ? &q : nullptr, token, uniform[1]);
        token = other < 0 ? token : other;  // both distributions are the same, but for rounding
    }
    return {accepted, token, double(target[token]) - (std::log(p.sums.total) + p.sums.largest)};
}

}  // namespace pyquant::sample
