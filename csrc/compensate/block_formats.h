// Blocks of 32 columns with one fp16 scale.
#pragma once

#include <cstring>

#include "compensate/format.h"
#include "kernels/block.h"

namespace pyquant {

// Codes in nibbles (Q4_0, IQ4_NL, Q4_T) or bytes (Q8_0).
template <class Levels, class Block>
class BlockFormat {
public:
    static constexpr int kBytes = sizeof(Block);
    static constexpr int kFree = 1;  // of scale and minimum, what may be chosen
    using Stored = Scales<1>;

    explicit BlockFormat(const Levels & levels) : levels_(levels) {}

    const Levels & levels() const { return levels_; }

    void open(const Floats *, const float *, Stored &) const {}

    void trials(const Stored &, const Floats * x, const float * w, Trials & trials) const {
        const Floats best = search_scale(x, w, levels_);
        static constexpr float factors[] = {1, 0.97f, 1.03f, 0.94f, 1.06f, 0.91f, 1.09f};
        trials.n = 7;
        for (int t = 0; t < trials.n; ++t) {
            trials.stored[t][kScale] = as_halves(best * factors[t]);
        }
    }

    Floats value(const Stored &, Part part, Floats stored) const { return part == kScale ? stored : Floats{}; }
    Floats representable(const Stored &, Part, Floats scale) const { return as_halves(scale); }

    void store(const Stored & stored, const Codes * codes, int row, uint8_t * out) const {
        const uint16_t d = float_to_half(stored.of_sub[0][kScale][row]);
        std::memcpy(out, &d, sizeof d);
        out += sizeof d;
        if (sizeof(Block) == sizeof(BlockQ4_0)) {
            store_nibbles(codes[0], row, out);
            return;
        }
        for (int k = 0; k < kSub; ++k) {
            out[k] = uint8_t(codes[0][size_t(k)][row]);
        }
    }

private:
    Levels levels_;
};

// One scale for a whole matrix, in blocks of Q8_0: integer codes that are meant to be entropy-coded.
// Blocks whose weights do not fit into int8 by it get the first of its doubles by which they do.
class UniformFormat {
public:
    static constexpr int kBytes = sizeof(BlockQ8_0);
    static constexpr int kFree = 0;
    using Stored = Scales<1>;

    // step: fp16.
    explicit UniformFormat(uint16_t step) : step_(half_to_float(step)) {}

    const IntegerLevels & levels() const { return levels_; }

    void open(const Floats *, const float *, Stored &) const {}

    void trials(const Stored &, const Floats * x, const float *, Trials & trials) const {
        Floats largest{};
        for (int k = 0; k < kSub; ++k) {
            largest = maximum(largest, magnitude(x[k]));
        }
        trials.n = 1;
        Floats & scale = trials.stored[0][kScale];
        for (int row = 0; row < kLanes; ++row) {
            scale[row] = step_;
            while (largest[row] > kFits * scale[row] && scale[row] < kLargestPower) {
                scale[row] *= 2;
            }
        }
        scale = as_halves(scale);
    }

    Floats value(const Stored &, Part part, Floats stored) const { return part == kScale ? stored : Floats{}; }
    Floats representable(const Stored &, Part, Floats scale) const { return scale; }

    void store(const Stored & stored, const Codes * codes, int row, uint8_t * out) const {
        BlockQ8_0 block;
        block.d = float_to_half(stored.of_sub[0][kScale][row]);
        for (int k = 0; k < kSub; ++k) {
            block.codes[k] = int8_t(codes[0][size_t(k)][row]);
        }
        std::memcpy(out, &block, sizeof block);
    }

private:
    static constexpr float kFits = 112;  // some room to 127 is left for what is passed on within the block
    static constexpr float kLargestPower = 32768;  // of two, in fp16

    IntegerLevels levels_{-127, 127, 0};
    float step_;
};

}  // namespace pyquant
