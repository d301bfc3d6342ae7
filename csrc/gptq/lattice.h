// Scales of which a block's weights are multiples: where a model was trained for a type, or comes from
// another quantization, they lie on a lattice. Each level may be that of the extreme weight; the scale of
// least error is taken.
#pragma once

#include <cstring>
#include <type_traits>

#include "gptq/format.h"

namespace pyquant::gptq {

struct Interval {
    Floats middle, half;
};

// The numbers that become x where significands are rounded to `bits` bits; 11 are F16's, which has no step
// below 2^-24.
inline Interval rounded_to(Floats x, int bits) {
    Ints pattern;
    std::memcpy(&pattern, &x, sizeof x);
    pattern &= 0x7f800000;  // the exponent
    Floats power;
    std::memcpy(&power, &pattern, sizeof x);
    const Floats least = all(bits == 11 ? 0x1p-25f : 0.0f);
    const Floats half = maximum(power * (1.0f / float(1 << bits)), least);
    // Below a power of two steps are half as wide.
    const Ints uneven = (magnitude(x) == power) & (half > least);
    return {uneven ? x + x * (0.25f / float(1 << bits)) : x, uneven ? 0.75f * half : half};
}

// x: (32) weights of kLanes rows, rounded to significands of `bits` bits. The scale per row, an fp16; if
// there is one that gives the weights back, it does.
template <class Levels>
Floats lattice_scale(const Floats * x, const Levels & levels, int bits) {
    Interval weight[kSub];
    for (int k = 0; k < kSub; ++k) {
        weight[k] = rounded_to(x[k], bits);
    }
    const Floats extreme = extreme_of<kSub>(x);
    Floats least = all(3.0e38f), scale{};
    for (float level = levels.first(); level <= levels.last(); ++level) {
        if (level == 0 || levels.round(all(level))[0] != level) {
            continue;
        }
        const Floats inv = inverse(extreme * (1.0f / level));
        Floats code[kSub], low = all(-3.0e38f), high = all(3.0e38f);
        for (int k = 0; k < kSub; ++k) {
            code[k] = levels.round(x[k] * inv);
            const Floats per_code = inverse(code[k]);
            const Floats middle = weight[k].middle * per_code, half = weight[k].half * magnitude(per_code);
            low = code[k] != 0 ? maximum(low, middle - half) : low;
            high = code[k] != 0 ? minimum(high, middle + half) : high;
        }
        const Floats fit = as_halves((low + high) * 0.5f);
        Floats error{};
        for (int k = 0; k < kSub; ++k) {
            const Floats missed = magnitude(weight[k].middle - fit * code[k]) - weight[k].half;
            error += maximum(missed, all(0.0f));
        }
        const Ints better = error < least;
        least = better ? error : least;
        scale = better ? fit : scale;
    }
    return scale;
}

// The scale and the minimum of codes 0..highest, both fp16, by least squares.
inline ScaleAndMinimum lattice_scale_and_minimum(const Floats * x, int highest) {
    Floats low = x[0], high = x[0];
    for (int k = 1; k < kSub; ++k) {
        low = minimum(low, x[k]);
        high = maximum(high, x[k]);
    }
    Floats above[kSub], sum_x{};
    for (int k = 0; k < kSub; ++k) {
        above[k] = x[k] - low;
        sum_x += above[k];
    }
    const IntegerLevels levels{0, float(highest), 0};
    Floats least = all(3.0e38f);
    ScaleAndMinimum result{};
    for (int steps = 1; steps <= highest; ++steps) {  // from the lowest weight to the highest
        const Floats inv = inverse((high - low) * (1.0f / float(steps)));
        Floats code[kSub], sum_c{}, sum_cc{}, sum_xc{};
        for (int k = 0; k < kSub; ++k) {
            code[k] = levels.round(above[k] * inv);
            sum_c += code[k];
            sum_cc = fma(code[k], code[k], sum_cc);
            sum_xc = fma(code[k], above[k], sum_xc);
        }
        const Floats scale =
            as_halves((kSub * sum_xc - sum_x * sum_c) * inverse(kSub * sum_cc - sum_c * sum_c));
        const Floats offset = (sum_x - scale * sum_c) * (1.0f / kSub);  // of code 0 above the lowest weight
        Floats spread{};
        for (int k = 0; k < kSub; ++k) {
            const Floats missed = above[k] - offset - scale * code[k];
            spread = fma(missed, missed, spread);
        }
        for (int lowest = 0; lowest <= highest - steps; ++lowest) {  // the code of the lowest weight
            const Floats wanted = scale * float(lowest) - offset - low;
            const Floats stored = as_halves(wanted);
            const Floats missed = stored - wanted;
            const Floats error = fma(kSub * missed, missed, spread);
            const Ints better = error < least;
            least = better ? error : least;
            result.scale = better ? scale : result.scale;
            result.minimum = better ? stored : result.minimum;
        }
    }
    return result;
}

// A format whose scales are found in this way.
template <class Format>
class OnLattice : public Format {
public:
    OnLattice(const Format & format, int bits) : Format(format), bits_(bits) {}

    void trials(const typename Format::Stored &, const Floats * x, const float *, Trials & trials) const {
        trials.n = 1;
        Format::on_lattice(x, bits_, trials.stored[0]);
    }

private:
    int bits_;
};

template <class Format, class = void>
inline constexpr bool kHasLattice = false;
template <class Format>
inline constexpr bool kHasLattice<Format, std::void_t<decltype(&Format::on_lattice)>> = true;

}  // namespace pyquant::gptq
