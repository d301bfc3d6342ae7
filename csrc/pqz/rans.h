// Bytes by range asymmetric numeral systems (Duda, arXiv:1311.2540): each costs what its frequency says, to
// fractions of a bit. In lanes that a CPU decodes side by side (Giesen, arXiv:1402.3392): symbol i
// is of lane i % kLanes. What is written, byte by byte: docs/methods/pqz_format.md.
#pragma once

#include <array>

#include "pqz/bytes.h"

namespace pyquant::pqz::rans {

inline constexpr int kLanes = 64;          // 8 registers of AVX2: fewer wait for each other
inline constexpr int kFrequencyBits = 12;  // of their sum: their table takes half of a core's fastest cache
inline constexpr uint32_t kFrequencies = 1u << kFrequencyBits;
inline constexpr uint32_t kLeastState = 1u << 16;  // below it, a lane takes in the next 16 bits

class Encoder {
public:
    // Appends n coded bytes to out. counts: of these, at least two different ones.
    void encode(const uint8_t * data, size_t n, const Histogram & counts, Bytes & out);

private:
    Bytes words_;
};

class Decoder {
public:
    // Throws Damaged unless the coded bytes make exactly n bytes.
    void decode(const uint8_t * coded, size_t n_coded, uint8_t * data, size_t n);

private:
    const uint8_t * read_frequencies(const uint8_t * coded, const uint8_t * end);

    // Entries for what a state has in its lowest bits: the symbol (8 bits), how many of its places come
    // before (12), its frequency (12).
    std::array<uint32_t, kFrequencies> table_;
};

}  // namespace pyquant::pqz::rans
