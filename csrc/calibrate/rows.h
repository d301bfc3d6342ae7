// Rows of numbers in memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/bf16_tile.h"

namespace pyquant::calibrate {

// n of them, the next one `stride` floats after the one before.
struct Rows {
    const float * data;
    int64_t n;
    int64_t stride;
};

// The same of numbers of another type, `stride` bytes apart.
struct Numbers {
    Numbers(const char * data, int64_t n, size_t stride, kernels::Number type)
        : data(data),
          n(n),
          stride(stride),
          type(type) {}
    Numbers(const Rows & rows)
        : Numbers(reinterpret_cast<const char *>(rows.data), rows.n, size_t(rows.stride) * sizeof(float),
                  kernels::kFloat32) {}

    // The address of a row's numbers from `number` on.
    const char * at(int64_t row, int64_t number) const {
        return data + size_t(row) * stride + size_t(number) * kernels::kNumberBytes[type];
    }

    const char * data;
    int64_t n;
    size_t stride;
    kernels::Number type;
};

}  // namespace pyquant::calibrate
