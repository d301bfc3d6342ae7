// Bounds of what the header of a GGUF may hold. GGML's reader takes whatever fits into the file: 30 bytes of
// memory for each byte of it, or a gigabyte for a hole in a sparse one.
#pragma once

#include <cstdint>
#include <cstdio>
#include <stdexcept>

namespace pyquant::gguf {

inline constexpr uint64_t kMostTensors = 1 << 15;  // models of 512 layers have fewer
inline constexpr uint64_t kMostKeys = 40'000;      // one for each tensor, and others
inline constexpr uint64_t kMostTexts = 1 << 21;    // in arrays: vocabularies have up to 300,000, and merges
inline constexpr uint64_t kMostBytes = 64 << 20;

struct TooLarge : std::length_error {
    using std::length_error::length_error;
};

// Walks through a header from the file's position on. Throws TooLarge where it has more than may be. Whatever
// else is wrong with it ends the walk without an error: GGML's reader says that better.
void check_bounds(std::FILE * file);

}  // namespace pyquant::gguf
