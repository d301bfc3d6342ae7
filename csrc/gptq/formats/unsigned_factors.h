// Q2_K, Q4_K and Q5_K: super-blocks of 256 columns with an fp16 scale of scales and one of minima, and a
// factor from 0 on, on either, for each sub-block.
#pragma once

#include "gptq/format.h"

namespace pyquant::gptq {

// Codes of kBits bits, sub-blocks of n_columns, factors of kFactorBits bits.
template <int kBits, int n_columns, int kFactorBits>
class UnsignedFactors {
public:
    using Stored = Scales<256 / n_columns, n_columns>;
    static constexpr int kFree = 2;
    static constexpr float kHighest = (1 << kBits) - 1;
    static constexpr float kHighestFactor = (1 << kFactorBits) - 1;

    const IntegerLevels & levels() const { return levels_; }

    void trials(const Stored & stored, const Floats * x, const float * w, Trials & trials) const {
        const auto best = search_scale_and_minimum<n_columns>(x, w, kHighest);
        const Floats scale = representable(stored, kScale, best.scale);
        const Floats least = representable(stored, kMinimum, best.minimum);
        static constexpr float steps[][2] = {{0, 0}, {1, 0},   {-1, 0}, {0, 1}, {0, -1},
                                             {1, 1}, {-1, -1}, {1, -1}, {-1, 1}};
        trials.n = 9;
        for (int t = 0; t < trials.n; ++t) {
            trials.stored[t][kScale] = within(scale + steps[t][0]);
            trials.stored[t][kMinimum] = within(least + steps[t][1]);
        }
    }

    Floats value(const Stored & stored, Part part, Floats factor) const {
        return stored.whole[part] * factor;
    }

    Floats representable(const Stored & stored, Part part, Floats value) const {
        return within(nearest(minimum(value * inverse(stored.whole[part]), all(kHighestFactor))));
    }

private:
    static Floats within(Floats factor) { return minimum(maximum(factor, all(0.0f)), all(kHighestFactor)); }

    IntegerLevels levels_{0, kHighest, 0};
};

}  // namespace pyquant::gptq
