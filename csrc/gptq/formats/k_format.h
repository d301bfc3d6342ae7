// Q4_K and Q5_K: sub-blocks of 32 columns, factors of 6 bits. The scale of scales lets the largest scale have
// the highest factor, the scale of minima likewise.
#pragma once

#include <cstring>

#include "gptq/formats/unsigned_factors.h"

namespace pyquant::gptq {

template <int kBits>
class KFormat : public UnsignedFactors<kBits, kSub, 6> {
    using Base = UnsignedFactors<kBits, kSub, 6>;

public:
    using typename Base::Stored;
    static constexpr int kBytes = 2 + 2 + 12 + Stored::kSuper * kBits / 8;

    void open(const Floats * x, const float * w, Stored & stored) const {
        ScaleAndMinimum largest{};
        for (int sub = 0; sub < Stored::kSubs; ++sub) {
            const auto best = search_scale_and_minimum(x + sub * kSub, w + sub * kSub, Base::kHighest);
            largest.scale = maximum(largest.scale, best.scale);
            largest.minimum = maximum(largest.minimum, best.minimum);
        }
        stored.whole[kScale] = as_halves(largest.scale / Base::kHighestFactor);
        stored.whole[kMinimum] = as_halves(largest.minimum / Base::kHighestFactor);
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
};

}  // namespace pyquant::gptq
