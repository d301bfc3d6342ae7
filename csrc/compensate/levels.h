// The values that codes stand for, in multiples of a block's scale, and rounding to them.
#pragma once

#include "compensate/lanes.h"

namespace pyquant {

// All integers from the lowest on: code = value - lowest.
struct IntegerLevels {
    float lowest;
    float highest;

    float first() const { return lowest; }
    float last() const { return highest; }

    // The level's value.
    Floats round(Floats x) const {
        return nearest(minimum(maximum(x, all(lowest)), all(highest)));
    }

    Ints code(Floats value) const { return __builtin_convertvector(value - lowest, Ints); }
};

// 16 ascending values; halfway between two the lower one.
struct TableLevels {
    float value[16];
    float bound[15];  // midpoints

    float first() const { return value[0]; }
    float last() const { return value[15]; }

    // Sums of integers below 2^24, exact in any order.
    Floats round(Floats x) const {
        Floats result = all(value[0]);
        for (int i = 0; i < 15; ++i) {
            result += x > bound[i] ? all(value[i + 1] - value[i]) : all(0.0f);
        }
        return result;
    }

    Ints code(Floats x) const {
        Ints result{};
        for (int i = 0; i < 15; ++i) {
            result -= x > bound[i];
        }
        return result;
    }
};

}  // namespace pyquant
