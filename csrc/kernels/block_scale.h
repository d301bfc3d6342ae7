// The two grids: a rule for a block's scale and a rule for rounding to integer multiples of it.
// Both give the codes of GGML's reference quantizers, bit for bit, and are written so that a
// compiler turns every loop over the block into vector code without being allowed to reorder it.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/block.h"
#include "kernels/half.h"

namespace pyquant::kernels {

struct GridBlock {
    uint16_t d;            // fp16 scale
    int8_t codes[kBlock];  // multiples of the scale
};

inline constexpr uint32_t kInfinityBits = 0x7f800000;
inline constexpr uint16_t kHalfInfinity = 0x7c00;

// The weight of largest magnitude, of equal ones a negative. Rotated left by one, the bits of floats
// order by magnitude first and sign second, so this is a maximum of integers, without a branch that
// would go either way; an infinity or a NaN has the largest magnitudes of all.
inline uint32_t extreme_bits(const float * x) {
    uint32_t largest = 0;
    for (int j = 0; j < kBlock; ++j) {
        const uint32_t bits = bits_of(x[j]);
        largest = std::max(largest, bits << 1 | bits >> 31);
    }
    return largest >> 1 | largest << 31;
}

inline bool contains(const float * x, uint32_t wanted) {
    uint32_t found = 0;
    for (int j = 0; j < kBlock; ++j) {
        found |= bits_of(x[j]) == wanted;
    }
    return found;
}

// Says whether fp16 can hold the scale, which infinities and NaNs among the weights rule out as well.
inline bool has_scale(uint32_t largest, uint16_t d) {
    return largest < kInfinityBits && (d & 0x7fff) < kHalfInfinity;
}

// A scale so small that its inverse overflows leaves nothing to round; the references then store
// what x86 makes of converting infinity to an integer, cut to 8 bits: 0.
inline bool overflows(float inverse) {
    return (bits_of(inverse) & 0x7fffffff) >= kInfinityBits;
}

// Scale: the element of largest magnitude, with its sign, becomes -8. Codes: -8..7.
// False if the block has no scale.
inline bool grid_q4_0(const float * x, GridBlock & out) {
    const uint32_t bits = extreme_bits(x), largest = bits & 0x7fffffff;
    float extreme = float_from_bits(bits);
    if (contains(x, largest) & (bits >> 31)) {  // both signs: the first one counts
        extreme = *std::find_if(x, x + kBlock, [&](float v) { return std::fabs(v) == -extreme; });
    }
    extreme += 0.0f;  // a block of zeros: never -0
    const float d = extreme / -8;
    out.d = float_to_half(d);
    if (!has_scale(largest, out.d)) {
        return false;
    }
    const float inverse = d != 0 ? 1.0f / d : 0.0f;
    if (overflows(inverse)) {
        std::fill_n(out.codes, kBlock, int8_t(-8));
        return true;
    }
    for (int j = 0; j < kBlock; ++j) {
        const int code = int(x[j] * inverse + 8.5f);
        out.codes[j] = int8_t(std::min(code, 15) - 8);
    }
    return true;
}

// Scale: the largest magnitude becomes 127. Codes: -127..127, halves rounded away from zero.
// False if the block has no scale.
inline bool grid_q8_0(const float * x, GridBlock & out) {
    const uint32_t largest = extreme_bits(x) & 0x7fffffff;
    const float d = float_from_bits(largest) / 127;
    out.d = float_to_half(d);
    if (!has_scale(largest, out.d)) {
        return false;
    }
    const float inverse = d != 0 ? 1.0f / d : 0.0f;
    if (overflows(inverse)) {
        std::fill_n(out.codes, kBlock, int8_t(0));
        return true;
    }
    for (int j = 0; j < kBlock; ++j) {
        // The float below one half: added and cut off, it rounds as roundf does.
        const float scaled = x[j] * inverse;
        out.codes[j] = int8_t(int(scaled + std::copysign(0x1.fffffep-2f, scaled)));
    }
    return true;
}

}  // namespace pyquant::kernels
