// Counts of bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pyquant::kernels {

// Histogram of bytes in four interleaved tables: neighbours are often equal, and an increment must
// not wait for the one before it.
struct ByteHistogram {
    uint64_t table[4][256] = {};

    void add(const void * data, size_t n) {
        const uint8_t * bytes = static_cast<const uint8_t *>(data);
        size_t i = 0;
        for (; i + 4 <= n; i += 4) {
            ++table[0][bytes[i + 0]];
            ++table[1][bytes[i + 1]];
            ++table[2][bytes[i + 2]];
            ++table[3][bytes[i + 3]];
        }
        for (; i < n; ++i) {
            ++table[0][bytes[i]];
        }
    }

    uint64_t operator[](int byte) const {
        return table[0][byte] + table[1][byte] + table[2][byte] + table[3][byte];
    }
};

}  // namespace pyquant::kernels
