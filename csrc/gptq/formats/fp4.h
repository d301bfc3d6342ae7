// MXFP4 and NVFP4: codes of the type E2M1, scales of 8 bits.
#pragma once

#include <cstring>

#include "gptq/format.h"

namespace pyquant::gptq {

// Floats of 8 bits without a sign, by their codes, which ascend as they do: a code is the upper bits of a
// float32, of which kMantissa are the mantissa's, with another exponent.
template <int kMantissa, int kExponent, int kLowest, int kHighest>
struct ScaleCodes {
    static Floats value(Floats code) {
        return Floats(__builtin_convertvector(code, Ints) << kShift) * std::ldexp(1.0f, kExponent);
    }

    // The code of the nearest.
    static Floats code(Floats value) {
        const Floats scaled = minimum(value * std::ldexp(1.0f, -kExponent), all(1.0e38f));
        return within(__builtin_convertvector((Ints(scaled) + (1 << (kShift - 1))) >> kShift, Floats));
    }

    static Floats within(Floats code) { return minimum(maximum(code, all(kLowest)), all(kHighest)); }

private:
    static constexpr int kShift = 23 - kMantissa;
};

// Columns of Stored::kColumns share a scale; nothing is shared by more.
template <class StoredScales, class Codes8>
class Fp4Format {
public:
    using Stored = StoredScales;
    static constexpr int kFree = 1;

    const TableLevels & levels() const { return levels_; }

    void open(const Floats *, const float *, Stored &) const {}

    void trials(const Stored &, const Floats * x, const float * w, Trials & trials) const {
        const Floats best = Codes8::code(magnitude(search_scale<Stored::kColumns>(x, w, levels_)));
        static constexpr float steps[] = {0, -1, 1, -2, 2};
        trials.n = 5;
        for (int t = 0; t < trials.n; ++t) {
            trials.stored[t][kScale] = Codes8::within(best + steps[t]);
        }
    }

    Floats value(const Stored &, Part part, Floats code) const {
        return part == kScale ? Codes8::value(code) : Floats{};
    }

    Floats representable(const Stored &, Part, Floats scale) const {
        return Codes8::code(maximum(scale, Floats{}));
    }

private:
    static TableLevels e2m1() {
        static constexpr int8_t values[] = {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12};
        static constexpr uint8_t codes[] = {15, 14, 13, 12, 11, 10, 9, 0, 1, 2, 3, 4, 5, 6, 7};
        return TableLevels(values, codes, 15);
    }

    TableLevels levels_ = e2m1();  // doubled, as GGML has them; scales are halved
};

}  // namespace pyquant::gptq
