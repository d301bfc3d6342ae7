#include "kernels/count.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "kernels/block.h"
#include "kernels/byte_histogram.h"

namespace pyquant::kernels {
namespace {

// Bit j is set where bytes[j] == value, for 16 bytes.
inline uint32_t equal_mask(const void * data, uint8_t value) {
#if defined(__SSE2__)
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i *>(data));
    return uint32_t(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(char(value)))));
#else
    const uint8_t * bytes = static_cast<const uint8_t *>(data);
    uint32_t mask = 0;
    for (int j = 0; j < 16; ++j) {
        mask |= uint32_t(bytes[j] == value) << j;
    }
    return mask;
#endif
}

// Bits in row order: weights j and j + 16 share a byte.
uint32_t zero_mask(const BlockQ4_0 & block, uint8_t zero_code) {
    uint8_t low[16], high[16];
    for (int j = 0; j < 16; ++j) {
        low[j] = block.codes[j] & 15;
        high[j] = block.codes[j] >> 4;
    }
    return equal_mask(low, zero_code) | equal_mask(high, zero_code) << 16;
}

uint32_t zero_mask(const BlockQ8_0 & block, uint8_t zero_code) {
    return equal_mask(block.codes, zero_code) | equal_mask(block.codes + 16, zero_code) << 16;
}

// Let P(k) be the number of positions at which k set bits begin. A run of length L holds
// L - k + 1 of them, so P(k) - P(k + 1) runs are at least k long: no loop over single runs.
void add_windows(const std::vector<uint64_t> & bits, uint64_t windows[kRunBins + 2]) {
    for (size_t w = 0; w + 1 < bits.size(); ++w) {
        const uint64_t here = bits[w], next = bits[w + 1];
        uint64_t starts = here;
        for (int k = 1; starts != 0 && k <= kRunBins + 1; ++k) {
            windows[k] += uint64_t(__builtin_popcountll(starts));
            starts &= here >> k | next << (64 - k);
        }
    }
}

}  // namespace

CodeCounts & CodeCounts::operator+=(const CodeCounts & other) {
    for (int code = 0; code < 256; ++code) {
        codes[code] += other.codes[code];
    }
    for (int bin = 0; bin < kRunBins; ++bin) {
        runs[bin] += other.runs[bin];
    }
    return *this;
}

template <class Block>
void CodeCounter::count_rows(const Block * blocks, int64_t n_rows, int64_t blocks_per_row,
                             CodeCounts & counts) {
    ByteHistogram bytes;
    uint64_t windows[kRunBins + 2] = {};
    zeros_.assign(size_t(blocks_per_row + 1) / 2 + 1, 0);  // the last word stays 0: it ends the row
    for (int64_t row = 0; row < n_rows; ++row, blocks += blocks_per_row) {
        for (int64_t i = 0; i < blocks_per_row; ++i) {
            bytes.add(blocks[i].codes, sizeof blocks[i].codes);
            const uint64_t mask = zero_mask(blocks[i], zero_code_);
            zeros_[size_t(i) / 2] = i % 2 == 0 ? mask : zeros_[size_t(i) / 2] | mask << 32;
        }
        add_windows(zeros_, windows);
    }
    for (int byte = 0; byte < 256; ++byte) {
        if (nibbles_) {
            counts.codes[byte & 15] += bytes[byte];
            counts.codes[byte >> 4] += bytes[byte];
        } else {
            counts.codes[byte] += bytes[byte];
        }
    }
    for (int k = 1; k < kRunBins; ++k) {
        counts.runs[k - 1] += windows[k] - 2 * windows[k + 1] + windows[k + 2];
    }
    counts.runs[kRunBins - 1] += windows[kRunBins] - windows[kRunBins + 1];
}

void CodeCounter::count(const void * blocks, int64_t n_rows, int64_t blocks_per_row, CodeCounts & counts) {
    nibbles_ ? count_rows(static_cast<const BlockQ4_0 *>(blocks), n_rows, blocks_per_row, counts)
             : count_rows(static_cast<const BlockQ8_0 *>(blocks), n_rows, blocks_per_row, counts);
}

}  // namespace pyquant::kernels
