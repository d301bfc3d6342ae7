// Q4_1 and Q5_1: blocks of 32 columns with an fp16 scale and an fp16 minimum.
#pragma once

#include <cstring>

#include "gptq/format.h"
#include "gptq/lattice.h"

namespace pyquant::gptq {

// weight = code * scale - minimum; the file has the minimum's negative.
template <class CodeLayout, int highest>
class OneScaleAndMinimum {
public:
    static constexpr int kBytes = 2 * int(sizeof(uint16_t)) + CodeLayout::kBytes;
    static constexpr int kFree = 2;
    using Stored = Scales<1>;

    const IntegerLevels & levels() const { return levels_; }

    void open(const Floats *, const float *, Stored &) const {}

    void trials(const Stored &, const Floats * x, const float * w, Trials & trials) const {
        const auto best = search_scale_and_minimum(x, w, highest);
        // Factors on the scale, and how many scales the minimum moves.
        static constexpr float tried[][2] = {{1, 0},     {1, -0.5f}, {1, 0.5f},      {0.97f, 0},   {1.03f, 0},
                                             {0.94f, 0}, {1.06f, 0}, {0.94f, -0.5f}, {1.06f, 0.5f}};
        trials.n = 9;
        for (int t = 0; t < trials.n; ++t) {
            trials.stored[t][kScale] = as_halves(best.scale * tried[t][0]);
            trials.stored[t][kMinimum] = as_halves(best.minimum + best.scale * tried[t][1]);
        }
    }

    void on_lattice(const Floats * x, int, Floats * stored) const {
        const auto found = lattice_scale_and_minimum(x, highest);
        stored[kScale] = found.scale;
        stored[kMinimum] = found.minimum;
    }

    Floats value(const Stored &, Part, Floats stored) const { return stored; }
    Floats representable(const Stored &, Part, Floats value) const { return as_halves(value); }

    void store(const Stored & stored, const Codes * codes, int row, uint8_t * out) const {
        const uint16_t halves[] = {kernels::float_to_half(stored.of_sub[0][kScale][row]),
                                   kernels::float_to_half(-stored.of_sub[0][kMinimum][row])};
        std::memcpy(out, halves, sizeof halves);
        CodeLayout::store(codes[0], row, out + sizeof halves);
    }

private:
    IntegerLevels levels_{0, highest, 0};
};

}  // namespace pyquant::gptq
