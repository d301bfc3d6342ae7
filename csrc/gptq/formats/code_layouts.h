// Layouts of the codes of a block: 32 of them, or 256.
#pragma once

#include <cstring>

#include "gptq/format.h"

namespace pyquant::gptq {

struct Nibbles {
    static constexpr int kBytes = kSub / 2;

    static void store(const Codes & codes, int row, uint8_t * out) { store_nibbles(codes, row, out); }
};

// The fifth bits in a word, the others in nibbles.
struct FiveBits {
    static constexpr int kBytes = int(sizeof(uint32_t)) + kSub / 2;

    static void store(const Codes & codes, int row, uint8_t * out) {
        uint32_t fifth = 0;
        for (int k = 0; k < kSub; ++k) {
            fifth |= uint32_t(codes[size_t(k)][row] >> 4) << k;
        }
        std::memcpy(out, &fifth, sizeof fifth);
        store_nibbles(codes, row, out + sizeof fifth);
    }
};

struct Bytes {
    static constexpr int kBytes = kSub;

    static void store(const Codes & codes, int row, uint8_t * out) {
        for (int k = 0; k < kSub; ++k) {
            out[k] = uint8_t(codes[size_t(k)][row]);
        }
    }
};

// The low 2 bits of 256 codes, into 64 bytes of zeros: 128 columns in 32 bytes, 32 columns in 2 bits of each.
inline void store_two_bits(const Codes * codes, int row, uint8_t * out) {
    for (int block = 0; block < 8; ++block) {
        for (int j = 0; j < kSub; ++j) {
            uint8_t & byte = out[block / 4 * kSub + j];
            byte = uint8_t(byte | (codes[block][size_t(j)][row] & 3) << 2 * (block % 4));
        }
    }
}

}  // namespace pyquant::gptq
