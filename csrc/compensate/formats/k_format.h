// Q4_K and Q5_K: super-blocks of 256 columns with an fp16 scale of scales and one of minima, and a factor
// of 0..63 on either for each 32.
#pragma once

#include <cstring>

#include "compensate/format.h"

namespace pyquant::compensate {

template <int kBits>
class KFormat {
public:
    using Stored = Scales<8>;
    static constexpr float kHighest = (1 << kBits) - 1;
    static constexpr int kBytes = 2 + 2 + 12 + Stored::kSubs * kSub * kBits / 8;
    static constexpr int kFree = 2;

    const IntegerLevels & levels() const { return levels_; }

    void open(const Floats * x, const float * w, Stored & stored) const {
        ScaleAndMinimum largest{};
        for (int sub = 0; sub < Stored::kSubs; ++sub) {
            const auto found = search_scale_and_minimum(x + sub * kSub, w + sub * kSub, kHighest);
            largest.scale = maximum(largest.scale, found.scale);
            largest.minimum = maximum(largest.minimum, found.minimum);
        }
        stored.whole[kScale] = as_halves(largest.scale / 63.0f);
        stored.whole[kMinimum] = as_halves(largest.minimum / 63.0f);
    }

    void trials(const Stored & stored, const Floats * x, const float * w, Trials & trials) const {
        const auto found = search_scale_and_minimum(x, w, kHighest);
        const Floats scale = representable(stored, kScale, found.scale);
        const Floats least = representable(stored, kMinimum, found.minimum);
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
        return within(nearest(minimum(value * inverse(stored.whole[part]), all(63.0f))));
    }

    void store(const Stored & stored, const Codes * codes, int row, uint8_t * out) const {
        uint8_t factor[2][Stored::kSubs];
        for (const Part part : {kScale, kMinimum}) {
            const uint16_t whole = kernels::float_to_half(stored.whole[part][row]);
            std::memcpy(out, &whole, sizeof whole);
            out += sizeof whole;
            for (int sub = 0; sub < Stored::kSubs; ++sub) {
                factor[part][sub] = uint8_t(stored.of_sub[sub][part][row]);
            }
        }
        const uint8_t * s = factor[kScale];
        const uint8_t * m = factor[kMinimum];
        for (int i = 0; i < 4; ++i) {  // 6 bits each: 4 + 4 whole ones, then 4 + 4 in two parts
            out[i] = uint8_t(s[i] | (s[i + 4] >> 4) << 6);
            out[i + 4] = uint8_t(m[i] | (m[i + 4] >> 4) << 6);
            out[i + 8] = uint8_t((s[i + 4] & 15) | (m[i + 4] & 15) << 4);
        }
        uint8_t * high = out + 12;
        uint8_t * low = high;
        if (kBits == 5) {
            low += kSub;
            std::memset(high, 0, kSub);
        }
        for (int sub = 0; sub < Stored::kSubs; ++sub) {
            for (int j = 0; j < kSub; ++j) {
                const int code = codes[sub][size_t(j)][row];
                uint8_t & byte = low[sub / 2 * kSub + j];
                byte = uint8_t(sub % 2 ? byte | (code & 15) << 4 : code & 15);
                if (kBits == 5) {
                    high[j] = uint8_t(high[j] | (code >> 4) << sub);
                }
            }
        }
    }

private:
    static Floats within(Floats factor) { return minimum(maximum(factor, all(0.0f)), all(63.0f)); }

    IntegerLevels levels_{0, kHighest, 0};
};

}  // namespace pyquant::compensate
