// Blocks of 32 consecutive weights of a row, stored byte for byte as GGML stores it.
#pragma once

#include <cstdint>

namespace pyquant::kernels {

inline constexpr int kBlock = 32;

// Byte j holds the codes of weights j (low nibble) and j + 16 (high nibble).
// Q4_0: weight = (code - 8) * d. IQ4_NL and Q4_T have the same layout and other tables.
struct BlockQ4_0 {
    uint16_t d;  // fp16
    uint8_t codes[kBlock / 2];
};
static_assert(sizeof(BlockQ4_0) == 18, "4.5 bits per weight");

// Values that the 16 codes of a Q4_T block, which has that layout too, stand for: weight = table[code] * d.
using Table = int8_t[16];

// weight = code * d
struct BlockQ8_0 {
    uint16_t d;  // fp16
    int8_t codes[kBlock];
};
static_assert(sizeof(BlockQ8_0) == 34, "8.5 bits per weight");

}  // namespace pyquant::kernels
