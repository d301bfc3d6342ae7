#include "kernels/divergence.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "kernels/half.h"

namespace pyquant::kernels {
namespace {

constexpr int kLanes = 16;

// exp for x <= 0 in float32, within 2 ulp, in a form that compilers vectorize (libm's is a call):
// x = k ln 2 + r with |r| <= ln 2 / 2, exp(r) by its Taylor polynomial of degree 7, whose
// remainder is below 5e-9, and 2^k put into the exponent. Results below 2^-126 become 0.
inline float exp_nonpositive(float x) {
    constexpr float log2_e = 1.44269504f;
    constexpr float ln2_high = 0.693359375f;  // few bits: k * ln2_high is exact
    constexpr float ln2_low = -2.12194440e-4f;
    constexpr float to_integer = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const float k = (std::max(x, -87.0f) * log2_e + to_integer) - to_integer;
    const float r = (std::max(x, -87.0f) - k * ln2_high) - k * ln2_low;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const float power = float_from_bits(uint32_t(int32_t(k) + 127) << 23);
    return x < -87.0f ? 0.0f : p * power;
}

float largest_of(const float * x, int64_t n) {
    float lanes[kLanes];
    std::fill_n(lanes, kLanes, x[0]);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        for (int l = 0; l < kLanes; ++l) {
            lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
        }
    }
    float largest = *std::max_element(lanes, lanes + kLanes);
    for (; i < n; ++i) {
        largest = std::max(largest, x[i]);
    }
    return largest;
}

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

double divergence(const Distribution & base, const Distribution & other, int64_t n) {
    float products[kTile];
    Lanes lanes;
    for (int64_t i = 0; i < n; i += kTile) {
        const int n_tile = int(std::min<int64_t>(kTile, n - i));
        for (int j = 0; j < n_tile; ++j) {
            const float b = base.x[i + j] - base.largest, o = other.x[i + j] - other.largest;
            products[j] = exp_nonpositive(b) * (b - o);
        }
        std::fill(products + n_tile, products + kTile, 0.0f);
        lanes.add(products);
    }
    return lanes.sum() * std::exp(-base.log_sum) + other.log_sum - base.log_sum;
}

// Gives each thread its share of the rows.
template <class Work>
void share_rows(int64_t n_rows, int n_threads, const Work & work) {
    std::vector<std::thread> threads;
    for (int t = 0; t < n_threads; ++t) {
        threads.emplace_back([=, &work] {
            for (int64_t row = n_rows * t / n_threads; row < n_rows * (t + 1) / n_threads; ++row) {
                work(row);
            }
        });
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
}

}  // namespace

void negative_log_likelihood(const float * logits, int64_t n_rows, int64_t n_vocab, const int32_t * targets,
                             double * nll, int n_threads) {
    share_rows(n_rows, n_threads, [&](int64_t row) {
        nll[row] = Distribution(logits + row * n_vocab, n_vocab).nll(targets[row]);
    });
}

void compare_logits(const float * base, const float * logits, int64_t n_rows, int64_t n_vocab,
                    const int32_t * targets, const Divergence & out, int n_threads) {
    share_rows(n_rows, n_threads, [&](int64_t row) {
        const Distribution p(base + row * n_vocab, n_vocab), q(logits + row * n_vocab, n_vocab);
        out.nll[row] = q.nll(targets[row]);
        out.kld[row] = divergence(p, q, n_vocab);
        out.same_top[row] = p.top(n_vocab) - p.x == q.top(n_vocab) - q.x;
    });
}

}  // namespace pyquant::kernels
