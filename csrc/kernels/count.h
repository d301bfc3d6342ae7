// Counts over stored codes: how often each occurs, and how long the runs of the zero code are.
#pragma once

#include <cstdint>
#include <vector>

namespace pyquant::kernels {

inline constexpr int kRunBins = 16;  // lengths 1..15, and 16 or more in the last

struct CodeCounts {
    uint64_t codes[256] = {};  // by stored code: nibble, or byte
    uint64_t runs[kRunBins] = {};

    CodeCounts & operator+=(const CodeCounts & other);
};

// Rows of nibble blocks (Q4_0, IQ4_NL) or byte blocks (Q8_0); a run ends with its row.
// Keeps a row's zero mask between calls, so that a thread allocates once.
class CodeCounter {
public:
    CodeCounter(bool nibbles, uint8_t zero_code) : nibbles_(nibbles), zero_code_(zero_code) {}

    void count(const void * blocks, int64_t n_rows, int64_t blocks_per_row, CodeCounts & counts);

private:
    template <class Block>
    void count_rows(const Block * blocks, int64_t n_rows, int64_t blocks_per_row, CodeCounts & counts);

    bool nibbles_;
    uint8_t zero_code_;
    std::vector<uint64_t> zeros_;  // one bit per weight of a row, in row order
};

}  // namespace pyquant::kernels
