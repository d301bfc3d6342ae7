// The values that codes stand for, in multiples of a block's scale, and rounding to them.
#pragma once

#include <cmath>

#include "gptq/lanes.h"

namespace pyquant::gptq {

// All integers between two.
struct IntegerLevels {
    static constexpr int kGroup = 1;  // columns that are rounded together

    float lowest;
    float highest;
    float zero;  // the level whose code is 0

    float first() const { return lowest; }
    float last() const { return highest; }

    // The level's value.
    Floats round(Floats x) const { return nearest(minimum(maximum(x, all(lowest)), all(highest))); }

    Ints code(Floats value) const { return __builtin_convertvector(value - zero, Ints); }
};

// Up to 16 ascending integers; halfway between two the lower one.
class TableLevels {
public:
    static constexpr int kGroup = 1;

    // n values, and the codes that stand for them.
    TableLevels(const int8_t * values, const uint8_t * codes, int n) {
        for (int i = 0; i < 16; ++i) {
            value_[i] = values[i < n ? i : n - 1];
            code_[i] = codes[i < n ? i : n - 1];
        }
        for (int i = 0; i < 32; ++i) {
            bound_[i] = i + 1 < n ? (value_[i] + value_[i + 1]) / 2 : INFINITY;
        }
    }

    float first() const { return value_[0]; }
    float last() const { return value_[15]; }

#ifdef __AVX512F__
    Floats round(Floats x) const { return pick(value_, index(x)); }
#else
    // Sums of integers below 2^24, exact in any order.
    Floats round(Floats x) const {
        Floats result = all(value_[0]);
        for (int i = 0; i < 15; ++i) {
            result += x > bound_[i] ? all(value_[i + 1] - value_[i]) : all(0.0f);
        }
        return result;
    }
#endif

    Ints code(Floats value) const {
        Ints result = index(value);
        for (int row = 0; row < kLanes; ++row) {
            result[row] = code_[result[row]];
        }
        return result;
    }

private:
    // Number of bounds that x is above.
#ifdef __AVX512F__
    // Searches by halving: look-ups in registers of 16.
    Ints index(Floats x) const {
        Ints found = x > bound_[7] ? Ints{} + 8 : Ints{};
        for (int step = 4; step > 0; step /= 2) {
            found += x > pick(bound_ + step - 1, found) ? Ints{} + step : Ints{};
        }
        return found;
    }

    static Floats pick(const float * table, Ints index) {
        return Floats(_mm512_permutexvar_ps(__m512i(index), _mm512_loadu_ps(table)));
    }
#else
    Ints index(Floats x) const {
        Ints found{};
        for (int i = 0; i < 15; ++i) {
            found -= x > bound_[i];
        }
        return found;
    }
#endif

    float value_[16];
    float bound_[32];  // midpoints; infinite past the last, as far as a look-up may read
    uint8_t code_[16];
};

}  // namespace pyquant::gptq
