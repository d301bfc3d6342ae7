#include "kernels/score.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "kernels/half.h"

namespace pyquant {
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

double sum_of_exp(const float * x, int64_t n, float shift) {
    constexpr int tile = 512;  // exponentials stay in L1 until they are summed
    float exponentials[tile];
    double lanes[kLanes] = {};
    for (int64_t i = 0; i < n; i += tile) {
        const int n_tile = int(std::min<int64_t>(tile, n - i));
        for (int j = 0; j < n_tile; ++j) {
            exponentials[j] = exp_nonpositive(x[i + j] - shift);
        }
        std::fill(exponentials + n_tile, exponentials + tile, 0.0f);
        for (int j = 0; j < tile; j += kLanes) {
            for (int l = 0; l < kLanes; ++l) {
                lanes[l] += double(exponentials[j + l]);
            }
        }
    }
    double sum = 0;
    for (double lane : lanes) {
        sum += lane;
    }
    return sum;
}

void score_rows(const float * logits, int64_t n_rows, int64_t n_vocab, const int32_t * targets,
                double * nll) {
    for (int64_t row = 0; row < n_rows; ++row, logits += n_vocab) {
        const float largest = largest_of(logits, n_vocab);
        nll[row] = std::log(sum_of_exp(logits, n_vocab, largest)) -
                   (double(logits[targets[row]]) - double(largest));
    }
}

}  // namespace

void negative_log_likelihood(const float * logits, int64_t n_rows, int64_t n_vocab,
                             const int32_t * targets, double * nll, int n_threads) {
    std::vector<std::thread> threads;
    for (int t = 0; t < n_threads; ++t) {
        const int64_t begin = n_rows * t / n_threads, end = n_rows * (t + 1) / n_threads;
        threads.emplace_back(score_rows, logits + begin * n_vocab, end - begin, n_vocab,
                             targets + begin, nll + begin);
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
}

}  // namespace pyquant
