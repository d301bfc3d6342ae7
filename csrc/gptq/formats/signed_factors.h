// Q3_K and Q6_K: super-blocks of 256 columns with an fp16 scale, and a signed factor on it for each 16.
#pragma once

#include "gptq/format.h"

namespace pyquant::gptq {

// Levels of kBits bits. kFactorBits: of a factor. kApart: of factors that are tried.
template <int kBits, int kFactorBits, int kApart>
class SignedFactors {
public:
    using Stored = Scales<16, 16>;
    static constexpr int kFree = 1;

    const IntegerLevels & levels() const { return levels_; }

    void open(const Floats * x, const float * w, Stored & stored) const {
        Floats scales[Stored::kSubs];
        float weights[Stored::kSubs] = {};
        for (int sub = 0; sub < Stored::kSubs; ++sub) {
            const int first = sub * Stored::kColumns;
            scales[sub] = search_scale<Stored::kColumns>(x + first, w + first, levels_);
            for (int k = 0; k < Stored::kColumns; ++k) {
                weights[sub] += w[first + k];
            }
        }
        stored.whole[kScale] = as_halves(search_scale<Stored::kSubs>(scales, weights, factors_));
    }

    void trials(const Stored & stored, const Floats * x, const float * w, Trials & trials) const {
        const Floats factor =
            nearest(search_scale<Stored::kColumns>(x, w, levels_) * inverse(stored.whole[kScale]));
        static constexpr float steps[] = {0, -1, 1, -2, 2, -3, 3};
        trials.n = 7;
        for (int t = 0; t < trials.n; ++t) {
            trials.stored[t][kScale] = within(factor + kApart * steps[t]);
        }
    }

    Floats value(const Stored & stored, Part part, Floats factor) const {
        return part == kScale ? stored.whole[kScale] * factor : Floats{};
    }

    Floats representable(const Stored & stored, Part, Floats scale) const {
        return within(nearest(scale * inverse(stored.whole[kScale])));
    }

private:
    Floats within(Floats factor) const {
        return minimum(maximum(factor, all(factors_.lowest)), all(factors_.highest));
    }

    static constexpr float kHalf = 1 << (kBits - 1), kFactors = 1 << (kFactorBits - 1);
    IntegerLevels levels_{-kHalf, kHalf - 1, -kHalf};
    IntegerLevels factors_{-kFactors, kFactors - 1, 0};
};

}  // namespace pyquant::gptq
