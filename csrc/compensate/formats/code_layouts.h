// How the 32 codes of a block are stored.
#pragma once

#include <cstring>

#include "compensate/format.h"

namespace pyquant::compensate {

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

}  // namespace pyquant::compensate
