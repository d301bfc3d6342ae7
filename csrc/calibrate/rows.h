// Rows of numbers in memory.
#pragma once

#include <cstdint>

namespace pyquant::calibrate {

// n of them, the next one `stride` floats after the one before.
struct Rows {
    const float * data;
    int64_t n;
    int64_t stride;
};

}  // namespace pyquant::calibrate
