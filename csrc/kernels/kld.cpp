#include "kernels/kld.h"

#include <algorithm>
#include <cmath>

#include "kernels/share_rows.h"
#include "kernels/softmax.h"

namespace pyquant::kernels {
namespace {

constexpr int kTile = 512;  // results of so many logits at a time stay in L1 until they are summed

struct Lanes {
    double sums[kLanes] = {};

    void add(const float (&values)[kTile]) {
        for (int j = 0; j < kTile; j += kLanes) {
            for (int l = 0; l < kLanes; ++l) {
                sums[l] += double(values[j + l]);
            }
        }
    }

    double sum() const {
        double total = 0;
        for (double lane : sums) {
            total += lane;
        }
        return total;
    }
};

double sum_of_exp(const float * x, int64_t n, float shift) {
    float exponentials[kTile];
    Lanes lanes;
    for (int64_t i = 0; i < n; i += kTile) {
        const int n_tile = int(std::min<int64_t>(kTile, n - i));
        for (int j = 0; j < n_tile; ++j) {
            exponentials[j] = exp_nonpositive(x[i + j] - shift);
        }
        std::fill(exponentials + n_tile, exponentials + kTile, 0.0f);
        lanes.add(exponentials);
    }
    return lanes.sum();
}

// A row of logits as a distribution: log p[j] = (x[j] - largest) - log_sum.
struct Distribution {
    const float * x;
    float largest;
    double log_sum;

    Distribution(const float * x, int64_t n)
        : x(x),
          largest(largest_of(x, n)),
          log_sum(std::log(sum_of_exp(x, n, largest))) {}

    double nll(int32_t token) const { return log_sum - (double(x[token]) - double(largest)); }

    const float * top(int64_t n) const { return std::find(x, x + n, largest); }
};

struct Apart {
    double kld, overlap;
};

Apart apart(const Distribution & base, const Distribution & other, int64_t n) {
    float products[kTile], smaller[kTile];
    Lanes lanes, smaller_lanes;
    const float to_base = float(std::exp(base.log_sum - other.log_sum));  // both in units of the base's sum
    for (int64_t i = 0; i < n; i += kTile) {
        const int n_tile = int(std::min<int64_t>(kTile, n - i));
        for (int j = 0; j < n_tile; ++j) {
            const float b = base.x[i + j] - base.largest, o = other.x[i + j] - other.largest;
            const float of_base = exp_nonpositive(b), of_other = exp_nonpositive(o) * to_base;
            // A token that the base forbids adds nothing, whatever the model thinks of it.
            products[j] = of_base > 0 ? of_base * (b - o) : 0.0f;
            smaller[j] = of_other < of_base ? of_other : of_base;
        }
        std::fill(products + n_tile, products + kTile, 0.0f);
        std::fill(smaller + n_tile, smaller + kTile, 0.0f);
        lanes.add(products);
        smaller_lanes.add(smaller);
    }
    const double per_sum = std::exp(-base.log_sum);
    return {lanes.sum() * per_sum + other.log_sum - base.log_sum, smaller_lanes.sum() * per_sum};
}

}  // namespace

void negative_log_likelihood(const float * logits, int64_t n_rows, int64_t n_vocab, const int32_t * targets,
                             double * nll, int n_threads) {
    share_rows(n_rows, n_threads, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            nll[row] = Distribution(logits + row * n_vocab, n_vocab).nll(targets[row]);
        }
    });
}

void compare_logits(const float * base, const float * logits, int64_t n_rows, int64_t n_vocab,
                    const int32_t * targets, const Kld & out, int n_threads) {
    share_rows(n_rows, n_threads, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            const Distribution p(base + row * n_vocab, n_vocab), q(logits + row * n_vocab, n_vocab);
            out.nll[row] = q.nll(targets[row]);
            const Apart measured = apart(p, q, n_vocab);
            out.kld[row] = measured.kld;
            out.overlap[row] = measured.overlap;
            out.same_top[row] = p.top(n_vocab) - p.x == q.top(n_vocab) - q.x;
        }
    });
}

}  // namespace pyquant::kernels
