// Coded bytes, and numbers in them: little endian, wherever they stand.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace pyquant::pqz {

using Bytes = std::vector<uint8_t>;
using Histogram = uint64_t[256];

// Coded bytes that no encoder writes.
struct Damaged : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline void write_u16(uint8_t * at, uint32_t value) {
    at[0] = uint8_t(value);
    at[1] = uint8_t(value >> 8);
}

inline uint32_t read_u16(const uint8_t * at) {
    return uint32_t(at[0]) | uint32_t(at[1]) << 8;
}

inline void write_u32(uint8_t * at, uint32_t value) {
    for (int i = 0; i < 4; ++i) {
        at[i] = uint8_t(value >> 8 * i);
    }
}

inline void append_u32(Bytes & out, uint32_t value) {
    out.resize(out.size() + 4);
    write_u32(&out[out.size() - 4], value);
}

inline uint32_t read_u32(const uint8_t * at) {
    return uint32_t(at[0]) | uint32_t(at[1]) << 8 | uint32_t(at[2]) << 16 | uint32_t(at[3]) << 24;
}

}  // namespace pyquant::pqz
