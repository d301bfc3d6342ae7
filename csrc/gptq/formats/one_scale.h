// Blocks of 32 columns with one fp16 scale.
#pragma once

#include <cstring>

#include "gptq/format.h"
#include "gptq/lattice.h"

namespace pyquant::gptq {

// The scale, then codes: what blocks whose scale is chosen in one way or another have in common.
template <class CodeLayout>
class ScaleThenCodes {
public:
    static constexpr int kBytes = int(sizeof(uint16_t)) + CodeLayout::kBytes;
    using Stored = Scales<1>;

    void open(const Floats *, const float *, Stored &) const {}

    Floats value(const Stored &, Part part, Floats stored) const {
        return part == kScale ? stored : Floats{};
    }

    void store(const Stored & stored, const Codes * codes, int row, uint8_t * out) const {
        const uint16_t d = kernels::float_to_half(stored.of_sub[0][kScale][row]);
        std::memcpy(out, &d, sizeof d);
        CodeLayout::store(codes[0], row, out + sizeof d);
    }
};

// A scale for every block, the best for it.
template <class Levels, class CodeLayout>
class OneScale : public ScaleThenCodes<CodeLayout> {
public:
    static constexpr int kFree = 1;  // of scale and minimum, what may be chosen

    explicit OneScale(const Levels & levels) : levels_(levels) {}

    const Levels & levels() const { return levels_; }

    void trials(const Scales<1> &, const Floats * x, const float * w, Trials & trials) const {
        const Floats best = search_scale(x, w, levels_);
        static constexpr float factors[] = {1, 0.97f, 1.03f, 0.94f, 1.06f, 0.91f, 1.09f};
        trials.n = 7;
        for (int t = 0; t < trials.n; ++t) {
            trials.stored[t][kScale] = as_halves(best * factors[t]);
        }
    }

    void on_lattice(const Floats * x, int bits, Floats * stored) const {
        stored[kScale] = lattice_scale(x, levels_, bits);
    }

    Floats representable(const Scales<1> &, Part, Floats scale) const { return as_halves(scale); }

private:
    Levels levels_;
};

}  // namespace pyquant::gptq
