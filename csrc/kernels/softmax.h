// What a softmax over a vocabulary is made of, in forms that compilers vectorize.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/half.h"

namespace pyquant::kernels {

constexpr int kLanes = 16;  // sums and maxima that are kept side by side

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

inline float largest_of(const float * x, int64_t n) {
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

}  // namespace pyquant::kernels
