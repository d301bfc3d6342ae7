// Parts of a softmax over a vocabulary, in forms that compilers vectorize.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/half.h"

namespace pyquant::kernels {

constexpr int kLanes = 16;   // sums that are kept side by side
constexpr int kMaxima = 64;  // maxima: their order is of no matter, and so many hide how long each takes

// exp for x <= 0 in float32, within 2 ulp, in a form that compilers vectorize (libm's is a call):
// x = k ln 2 + r with |r| <= ln 2 / 2, exp(r) by its Taylor polynomial of degree 7, whose
// remainder is below 5e-9, and 2^k put into the exponent. Results below exp(-87) become 0, by their bits:
// a choice between two numbers is something that compilers try to take out of the loop.
inline float exp_nonpositive(float x) {
    constexpr float log2_e = 1.44269504f;
    constexpr float ln2_high = 0.693359375f;  // few bits: k * ln2_high is exact
    constexpr float ln2_low = -2.12194440e-4f;
    constexpr float to_integer = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const float rounded = x * log2_e + to_integer;
    const float k = rounded - to_integer;
    const float r = (x - k * ln2_high) - k * ln2_low;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    // The last bits of `rounded` are k.
    const float power = float_from_bits((bits_of(rounded) - bits_of(to_integer) + 127) << 23);
    const uint32_t kept = uint32_t(x < -87.0f) - 1;
    return float_from_bits(bits_of(p * power) & kept);
}

// Searches by halves, as a search from lane to lane would wait for each. Overwrites the lanes.
inline float largest_lane(float * lanes) {
    for (int half = kMaxima / 2; half > 0; half /= 2) {
        for (int l = 0; l < half; ++l) {
            lanes[l] = lanes[l + half] > lanes[l] ? lanes[l + half] : lanes[l];
        }
    }
    return lanes[0];
}

inline float largest_of(const float * x, int64_t n) {
    float lanes[kMaxima];
    std::fill_n(lanes, kMaxima, x[0]);
    int64_t i = 0;
    for (; i + kMaxima <= n; i += kMaxima) {
        for (int l = 0; l < kMaxima; ++l) {
            lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
        }
    }
    float largest = largest_lane(lanes);
    for (; i < n; ++i) {
        largest = std::max(largest, x[i]);
    }
    return largest;
}

}  // namespace pyquant::kernels
