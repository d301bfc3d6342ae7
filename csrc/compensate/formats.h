// How blocks of kLanes rows get their scales and become bytes: one class for each kind of storage.
//
// A format is told when a super-block is entered (`open`: all of its columns, as far as they are known
// then), and for each of its sub-blocks of 32 columns which scales may be tried (`scales`), which one was
// taken (`take`), and at the end where the bytes of a row go (`store`). The weight of a code is
// scale * level - minimum.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "compensate/levels.h"
#include "compensate/search.h"
#include "kernels/block.h"

namespace pyquant {

// Scales that are tried for a sub-block, the most likely first: all where errors are passed on, which
// a search knows nothing of, else the first few, as rounding to a scale of the file is all that is new.
inline constexpr int kTrialsAlone = 3;
inline constexpr int kMaxTrials = 9;

struct Trials {
    int n;
    Floats scale[kMaxTrials];
    Floats minimum[kMaxTrials];
};

// Codes of a sub-block, in the order of its columns.
using Codes = std::array<Ints, kSub>;

inline void store_nibbles(const Codes & codes, int row, uint8_t * out) {
    for (int j = 0; j < kSub / 2; ++j) {
        out[j] = uint8_t(codes[size_t(j)][row] | codes[size_t(j + kSub / 2)][row] << 4);
    }
}

// One fp16 scale for 32 columns: codes in nibbles (Q4_0, IQ4_NL, Q4_T) or bytes (Q8_0).
template <class Levels, class Block>
class BlockFormat {
public:
    static constexpr int kSuper = kSub;
    static constexpr int kBytes = sizeof(Block);

    explicit BlockFormat(const Levels & levels) : levels_(levels) {}

    const Levels & levels() const { return levels_; }

    void open(const Floats *, const float *) {}

    void scales(int, const Floats * x, const float * w, Trials & trials) {
        const Floats best = search_scale(x, w, levels_);
        static constexpr float factors[] = {1, 0.97f, 1.03f, 0.94f, 1.06f, 0.91f, 1.09f};
        trials.n = 7;
        for (int t = 0; t < trials.n; ++t) {
            halves_[t] = halves(best * factors[t]);
            trials.scale[t] = from_halves(halves_[t]);
            trials.minimum[t] = Floats{};
        }
    }

    void take(int, Ints trial, const Floats * level) {
        for (int row = 0; row < kLanes; ++row) {
            d_[row] = uint16_t(halves_[trial[row]][row]);
        }
        for (int k = 0; k < kSub; ++k) {
            codes_[size_t(k)] = levels_.code(level[k]);
        }
    }

    void store(int row, uint8_t * out) const {
        std::memcpy(out, &d_[row], sizeof d_[row]);
        out += sizeof d_[row];
        if (sizeof(Block) == sizeof(BlockQ4_0)) {
            store_nibbles(codes_, row, out);
            return;
        }
        for (int k = 0; k < kSub; ++k) {
            out[k] = uint8_t(codes_[size_t(k)][row]);
        }
    }

private:
    Levels levels_;
    Ints halves_[kMaxTrials];
    uint16_t d_[kLanes];
    Codes codes_;
};

// One fp16 scale for a whole matrix, in blocks of Q8_0: integer codes that are meant to be entropy-coded.
// Blocks whose weights do not fit into int8 by it get the first of its doubles by which they do.
class UniformFormat {
public:
    static constexpr int kSuper = kSub;
    static constexpr int kBytes = sizeof(BlockQ8_0);

    // step: fp16.
    explicit UniformFormat(uint16_t step) : step_(half_to_float(step)) {}

    const IntegerLevels & levels() const { return levels_; }

    void open(const Floats *, const float *) {}

    void scales(int, const Floats * x, const float *, Trials & trials) {
        Floats largest{};
        for (int k = 0; k < kSub; ++k) {
            largest = maximum(largest, magnitude(x[k]));
        }
        for (int row = 0; row < kLanes; ++row) {
            scale_[row] = step_;
            while (largest[row] > kFits * scale_[row] && scale_[row] < kLargestPower) {
                scale_[row] *= 2;
            }
        }
        trials.n = 1;
        trials.scale[0] = scale_;
        trials.minimum[0] = Floats{};
    }

    void take(int, Ints, const Floats * level) { std::copy_n(level, kSub, level_); }

    void store(int row, uint8_t * out) const {
        BlockQ8_0 block;
        block.d = float_to_half(scale_[row]);
        for (int k = 0; k < kSub; ++k) {
            block.codes[k] = int8_t(level_[k][row]);
        }
        std::memcpy(out, &block, sizeof block);
    }

private:
    static constexpr float kFits = 112;  // some room to 127 is left for what is passed on within the block
    static constexpr float kLargestPower = 32768;  // of two, in fp16

    IntegerLevels levels_{-127, 127, 0};
    float step_;
    Floats scale_;
    Floats level_[kSub];
};

// IQ4_XS: an fp16 scale for 256 columns and a factor of -32..31 on it for each 32.
class Iq4XsFormat {
public:
    static constexpr int kSuper = 256, kSubs = kSuper / kSub;
    static constexpr int kBytes = 2 + 2 + kSubs / 2 + kSuper / 2;

    explicit Iq4XsFormat(const TableLevels & levels) : levels_(levels) {}

    const TableLevels & levels() const { return levels_; }

    void open(const Floats * x, const float * w) {
        Floats extreme{};
        for (int sub = 0; sub < kSubs; ++sub) {
            const Floats scale = search_scale(x + sub * kSub, w + sub * kSub, levels_);
            extreme = magnitude(scale) > magnitude(extreme) ? scale : extreme;
        }
        d_halves_ = halves(extreme / -32.0f);
        d_ = from_halves(d_halves_);
    }

    void scales(int, const Floats * x, const float * w, Trials & trials) {
        const Floats factor = search_scale(x, w, levels_) * inverse(d_);
        trials.n = 5;
        static constexpr float steps[] = {0, -1, 1, -2, 2};
        for (int t = 0; t < trials.n; ++t) {
            const Floats chosen = minimum(maximum(nearest(factor) + steps[t], all(-32.0f)), all(31.0f));
            factors_[t] = __builtin_convertvector(chosen, Ints);
            trials.scale[t] = d_ * chosen;
            trials.minimum[t] = Floats{};
        }
    }

    void take(int sub, Ints trial, const Floats * level) {
        for (int row = 0; row < kLanes; ++row) {
            factor_[row][sub] = uint8_t(factors_[trial[row]][row] + 32);
        }
        for (int k = 0; k < kSub; ++k) {
            codes_[sub][size_t(k)] = levels_.code(level[k]);
        }
    }

    void store(int row, uint8_t * out) const {
        uint16_t high = 0;
        uint8_t low[kSubs / 2] = {};
        for (int sub = 0; sub < kSubs; ++sub) {
            const int factor = factor_[row][sub];
            low[sub / 2] = uint8_t(low[sub / 2] | (factor & 15) << 4 * (sub % 2));
            high = uint16_t(high | (factor >> 4) << 2 * sub);
        }
        const uint16_t d = uint16_t(d_halves_[row]);
        std::memcpy(out, &d, 2);
        std::memcpy(out + 2, &high, 2);
        std::memcpy(out + 4, low, sizeof low);
        for (int sub = 0; sub < kSubs; ++sub) {
            store_nibbles(codes_[sub], row, out + 4 + sizeof low + sub * kSub / 2);
        }
    }

private:
    TableLevels levels_;
    Ints d_halves_;
    Floats d_;
    Ints factors_[kMaxTrials];
    uint8_t factor_[kLanes][kSubs];
    Codes codes_[kSubs];
};

// Q4_K and Q5_K: for 256 columns an fp16 scale of scales and one of minima, for each 32 columns
// a factor of 0..63 on either.
template <int kBits>
class KFormat {
public:
    static constexpr int kSuper = 256, kSubs = kSuper / kSub;
    static constexpr float kHighest = (1 << kBits) - 1;
    static constexpr int kBytes = 2 + 2 + 12 + (kBits == 5 ? kSuper / 8 : 0) + kSuper / 2;

    const IntegerLevels & levels() const { return levels_; }

    void open(const Floats * x, const float * w) {
        ScaleAndMinimum largest{};
        for (int sub = 0; sub < kSubs; ++sub) {
            const auto found = search_scale_and_minimum(x + sub * kSub, w + sub * kSub, kHighest);
            largest.scale = maximum(largest.scale, found.scale);
            largest.minimum = maximum(largest.minimum, found.minimum);
        }
        d_halves_ = halves(largest.scale / 63.0f);
        m_halves_ = halves(largest.minimum / 63.0f);
        d_ = from_halves(d_halves_);
        m_ = from_halves(m_halves_);
    }

    void scales(int, const Floats * x, const float * w, Trials & trials) {
        const auto found = search_scale_and_minimum(x, w, kHighest);
        const Floats scale = nearest(minimum(found.scale * inverse(d_), all(63.0f)));
        const Floats least = nearest(minimum(found.minimum * inverse(m_), all(63.0f)));
        trials.n = 9;
        static constexpr float steps[][2] = {{0, 0}, {1, 0}, {-1, 0}, {0, 1}, {0, -1},
                                             {1, 1}, {-1, -1}, {1, -1}, {-1, 1}};
        for (int t = 0; t < trials.n; ++t) {
            const Floats s = minimum(maximum(scale + steps[t][0], all(0.0f)), all(63.0f));
            const Floats m = minimum(maximum(least + steps[t][1], all(0.0f)), all(63.0f));
            scales_[t] = __builtin_convertvector(s, Ints);
            minima_[t] = __builtin_convertvector(m, Ints);
            trials.scale[t] = d_ * s;
            trials.minimum[t] = m_ * m;
        }
    }

    void take(int sub, Ints trial, const Floats * level) {
        for (int row = 0; row < kLanes; ++row) {
            scale_[row][sub] = uint8_t(scales_[trial[row]][row]);
            minimum_[row][sub] = uint8_t(minima_[trial[row]][row]);
        }
        for (int k = 0; k < kSub; ++k) {
            codes_[sub][size_t(k)] = levels_.code(level[k]);
        }
    }

    void store(int row, uint8_t * out) const {
        const uint16_t d[2] = {uint16_t(d_halves_[row]), uint16_t(m_halves_[row])};
        std::memcpy(out, d, sizeof d);
        uint8_t * packed = out + sizeof d;  // 6 bits each: 4 + 4 whole ones, then 4 + 4 in two parts
        const uint8_t * s = scale_[row];
        const uint8_t * m = minimum_[row];
        for (int i = 0; i < 4; ++i) {
            packed[i] = uint8_t(s[i] | (s[i + 4] >> 4) << 6);
            packed[i + 4] = uint8_t(m[i] | (m[i + 4] >> 4) << 6);
            packed[i + 8] = uint8_t((s[i + 4] & 15) | (m[i + 4] & 15) << 4);
        }
        uint8_t * high = packed + 12;
        uint8_t * low = high;
        if (kBits == 5) {
            low += kSub;
            std::memset(high, 0, kSub);
        }
        for (int sub = 0; sub < kSubs; ++sub) {
            for (int j = 0; j < kSub; ++j) {
                const int code = codes_[sub][size_t(j)][row];
                uint8_t & byte = low[sub / 2 * kSub + j];
                byte = uint8_t(sub % 2 ? byte | (code & 15) << 4 : code & 15);
                if (kBits == 5) {
                    high[j] = uint8_t(high[j] | (code >> 4) << sub);
                }
            }
        }
    }

private:
    IntegerLevels levels_{0, kHighest, 0};
    Ints d_halves_, m_halves_;
    Floats d_, m_;
    Ints scales_[kMaxTrials], minima_[kMaxTrials];
    uint8_t scale_[kLanes][kSubs], minimum_[kLanes][kSubs];
    Codes codes_[kSubs];
};

}  // namespace pyquant
