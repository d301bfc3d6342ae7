// One stream of bytes, coded: by zstd, and where single symbols cost much less than their shortest
// code word, in groups of symbols. What is written, byte by byte: docs/container.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "container/layout.h"
#include "zstd.h"

namespace pyquant {

using Bytes = std::vector<uint8_t>;
using Histogram = uint64_t[256];

// Coded bytes that no encoder writes.
struct Damaged : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class StreamEncoder {
public:
    StreamEncoder();

    // Appends the shortest of what the methods make of it to out. counts: of the stream's bytes.
    void encode(const uint8_t * data, size_t n, const Histogram & counts, Content content, Bytes & out);

private:
    struct FreeContext {
        void operator()(ZSTD_CCtx * context) const { ZSTD_freeCCtx(context); }
    };

    void compress(const uint8_t * data, size_t n, int level, Bytes & out);
    bool group(const uint8_t * data, size_t n, const Histogram & counts, size_t length, Bytes & out);

    std::unique_ptr<ZSTD_CCtx, FreeContext> context_;
    Bytes best_, other_, symbols_, escaped_;
    std::vector<uint32_t> group_counts_;
    Bytes symbol_of_group_;
};

class StreamDecoder {
public:
    StreamDecoder();

    // The coded bytes must make exactly n bytes of data. Throws Damaged.
    void decode(const uint8_t * coded, size_t n_coded, uint8_t * data, size_t n);

private:
    struct FreeContext {
        void operator()(ZSTD_DCtx * context) const { ZSTD_freeDCtx(context); }
    };

    void expand(const uint8_t * coded, size_t n_coded, uint8_t * data, size_t n);
    void ungroup(const uint8_t * coded, size_t n_coded, uint8_t * data, size_t n);

    std::unique_ptr<ZSTD_DCtx, FreeContext> context_;
    Bytes symbols_, escaped_;
};

}  // namespace pyquant
