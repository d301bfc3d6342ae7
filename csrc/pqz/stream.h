// One stream of bytes, coded: by rANS, or by zstd where bytes repeat or there are few of them. What is
// written, byte by byte: docs/methods/pqz_format.md.
#pragma once

#include <memory>

#include "pqz/layout.h"
#include "pqz/rans.h"
#include "zstd.h"

namespace pyquant::pqz {

class StreamEncoder {
public:
    StreamEncoder();

    // Appends the shortest of what the methods make of it to out. counts: of the stream's bytes.
    void encode(const uint8_t * data, size_t n, const Histogram & counts, Content content, Bytes & out);

private:
    struct FreeContext {
        void operator()(ZSTD_CCtx * context) const { ZSTD_freeCCtx(context); }
    };

    void try_zstd(const uint8_t * data, size_t n, int level);

    std::unique_ptr<ZSTD_CCtx, FreeContext> context_;
    rans::Encoder rans_;
    Bytes best_, other_;  // best_: empty until something pays
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

    std::unique_ptr<ZSTD_DCtx, FreeContext> context_;
    rans::Decoder rans_;
};

}  // namespace pyquant::pqz
