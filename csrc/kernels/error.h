// Error of a quantizer on weights: sums that add up over any split of a tensor.
#pragma once

#include <cstdint>

#include "kernels/block.h"
#include "kernels/half.h"

namespace pyquant::kernels {

struct Error {
    double squared_error = 0;   // sum of (x - y)^2
    double squared_weight = 0;  // sum of x^2
    double squared_value = 0;   // sum of y^2
    float largest = 0;          // max |x - y|
    int64_t largest_at = -1;    // its index in the tensor
    int64_t zeros = 0;          // y == 0

    Error & operator+=(const Error & other) {
        squared_error += other.squared_error;
        squared_weight += other.squared_weight;
        squared_value += other.squared_value;
        if (other.largest > largest || largest_at < 0) {
            largest = other.largest;
            largest_at = other.largest_at;
        }
        zeros += other.zeros;
        return *this;
    }
};

// x: weights, y: what was made of them, index: of x[0] in the tensor.
// Float products, double sums; the lanes are spelled out because a compiler may not reorder sums.
inline void measure(const float * x, const float * y, int64_t n, int64_t index, Error & error) {
    constexpr int lanes = 16;
    double squared_error[lanes] = {}, squared_weight[lanes] = {}, squared_value[lanes] = {};
    uint32_t largest[lanes] = {};  // bits of |x - y|, which order as the floats do
    int32_t zeros[lanes] = {};
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
        for (int l = 0; l < lanes; ++l) {
            const float difference = x[i + l] - y[i + l];
            squared_error[l] += double(difference * difference);
            squared_weight[l] += double(x[i + l] * x[i + l]);
            squared_value[l] += double(y[i + l] * y[i + l]);
            const uint32_t magnitude = bits_of(difference) & 0x7fffffff;
            largest[l] = magnitude > largest[l] ? magnitude : largest[l];
            zeros[l] += y[i + l] == 0;
        }
    }
    for (; i < n; ++i) {
        const int64_t l = i % lanes;
        const float difference = x[i] - y[i];
        squared_error[l] += double(difference * difference);
        squared_weight[l] += double(x[i] * x[i]);
        squared_value[l] += double(y[i] * y[i]);
        const uint32_t magnitude = bits_of(difference) & 0x7fffffff;
        largest[l] = magnitude > largest[l] ? magnitude : largest[l];
        zeros[l] += y[i] == 0;
    }
    Error sum;
    uint32_t largest_bits = 0;
    for (int l = 0; l < lanes; ++l) {
        sum.squared_error += squared_error[l];
        sum.squared_weight += squared_weight[l];
        sum.squared_value += squared_value[l];
        sum.zeros += zeros[l];
        largest_bits = largest[l] > largest_bits ? largest[l] : largest_bits;
    }
    sum.largest = float_from_bits(largest_bits);
    sum.largest_at = index;
    if (error.largest_at < 0 || sum.largest > error.largest) {  // rare enough to look for the place
        int64_t at = 0;
        while ((bits_of(x[at] - y[at]) & 0x7fffffff) != largest_bits) {
            ++at;
        }
        sum.largest_at = index + at;
    }
    error += sum;
}

// The same sums where every column has its importance.
struct WeightedError {
    double squared_error = 0;   // sum of w (x - y)^2
    double squared_weight = 0;  // sum of w x^2

    WeightedError & operator+=(const WeightedError & other) {
        squared_error += other.squared_error;
        squared_weight += other.squared_weight;
        return *this;
    }
};

// A row of weights x, of what was made of them y, and of importances w. Squares are floats, as above;
// their products with w are not: mean squared activations go down to where a float ends.
inline void measure_weighted(const float * x, const float * y, const float * w, int64_t n,
                             WeightedError & error) {
    constexpr int lanes = 16;
    double squared_error[lanes] = {}, squared_weight[lanes] = {};
    const auto add = [&](int64_t i, int64_t l) {
        const float difference = x[i] - y[i];
        squared_error[l] += double(w[i]) * double(difference * difference);
        squared_weight[l] += double(w[i]) * double(x[i] * x[i]);
    };
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
        for (int l = 0; l < lanes; ++l) {
            add(i + l, l);
        }
    }
    for (; i < n; ++i) {
        add(i, i % lanes);
    }
    WeightedError sum;
    for (int l = 0; l < lanes; ++l) {
        sum.squared_error += squared_error[l];
        sum.squared_weight += squared_weight[l];
    }
    error += sum;
}

}  // namespace pyquant::kernels
