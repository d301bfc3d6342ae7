// A block's scale, or scale and minimum, from its weights: rounding by many candidates, the least
// squares fit of the values to the codes that each gives, and the one of least weighted error.
#pragma once

#include "gptq/levels.h"

namespace pyquant::gptq {

inline constexpr int kSub = 32;  // columns that are worked on together, and in most types share a scale

// Factors on the scale at which the extreme weight meets the first or the last level.
inline constexpr int kFactors = 9;
inline constexpr float kLowestFactor = 0.76f, kFactorStep = 0.05f;

// The weight of largest magnitude among n, with its sign.
template <int n>
Floats extreme_of(const Floats * x) {
    Floats extreme = x[0];
    for (int k = 1; k < n; ++k) {
        extreme = magnitude(x[k]) > magnitude(extreme) ? x[k] : extreme;
    }
    return extreme;
}

// x: (n) weights of kLanes rows; w: (n) weights of their squared errors. The scale per row.
template <int n = kSub, class Levels>
Floats search_scale(const Floats * x, const float * w, const Levels & levels) {
    const Floats extreme = extreme_of<n>(x);
    Floats best = all(-1.0f), scale{};
    for (const float end : {levels.first(), levels.last()}) {
        for (int f = 0; f < kFactors; ++f) {
            const Floats inv = inverse(extreme * ((kLowestFactor + f * kFactorStep) / end));
            Floats xq{}, qq{};
            for (int k = 0; k < n; ++k) {
                const Floats q = levels.round(x[k] * inv);
                const Floats wq = w[k] * q;
                xq = fma(wq, x[k], xq);
                qq = fma(wq, q, qq);
            }
            const Floats fit = xq * inverse(qq);
            const Floats explained = fit * xq;  // of the sum of w x^2
            const Ints better = explained > best;
            best = better ? explained : best;
            scale = better ? fit : scale;
        }
    }
    return scale;
}

struct ScaleAndMinimum {
    Floats scale, minimum;  // weight = scale * code - minimum, both >= 0
};

// The same for codes 0..highest above a minimum.
template <int n = kSub>
ScaleAndMinimum search_scale_and_minimum(const Floats * x, const float * w, float highest) {
    const IntegerLevels levels{0, highest, 0};
    Floats low = x[0], high = x[0], sum_x{};
    float sum_w = 0;
    for (int k = 0; k < n; ++k) {
        low = minimum(low, x[k]);
        high = maximum(high, x[k]);
        sum_x += w[k] * x[k];
        sum_w += w[k];
    }
    low = minimum(low, all(0.0f));
    const Floats per_range = inverse(high - low);
    Floats best = all(3.0e38f);
    ScaleAndMinimum result{};
    for (int f = -4; f <= 4; ++f) {
        const Floats inv = (highest + 0.25f * f) * per_range;
        Floats sum_c{}, sum_cc{}, sum_xc{};
        for (int k = 0; k < n; ++k) {
            const Floats c = levels.round((x[k] - low) * inv);
            const Floats wc = w[k] * c;
            sum_c += wc;
            sum_cc = fma(wc, c, sum_cc);
            sum_xc = fma(wc, x[k], sum_xc);
        }
        // x = scale * c + offset, by least squares; where the offset came out above 0, without one
        const Floats inverse_determinant = inverse(sum_w * sum_cc - sum_c * sum_c);
        Floats scale = (sum_w * sum_xc - sum_x * sum_c) * inverse_determinant;
        Floats offset = (sum_cc * sum_x - sum_c * sum_xc) * inverse_determinant;
        const Ints above = offset > 0;
        scale = above ? sum_xc * inverse(sum_cc) : scale;
        offset = above ? all(0.0f) : offset;
        const Floats error = scale * (scale * sum_cc - 2 * sum_xc) + offset * (offset * sum_w - 2 * sum_x) +
                             2 * scale * offset * sum_c;
        const Ints better = (error < best) & (scale >= 0);
        best = better ? error : best;
        result.scale = better ? scale : result.scale;
        result.minimum = better ? -offset : result.minimum;
    }
    return result;
}

}  // namespace pyquant::gptq
