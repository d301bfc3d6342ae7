// A frame: some blocks of one layout, coded by themselves. A u32 for the coded length of each field's
// stream, then the streams.
#pragma once

#include "pqz/stream.h"

namespace pyquant::pqz {

// Result for one field's stream: how often its bytes occur, and its coded bytes.
struct FieldUse {
    Histogram counts = {};
    uint64_t coded_bytes = 0;

    void operator+=(const FieldUse & other);
};

uint64_t checksum(const uint8_t * data, size_t n);  // XXH3, 64 bits

class FrameEncoder {
public:
    // data: n bytes, whole blocks. The result is valid until the next call. use: one for each field,
    // added to.
    const Bytes & encode(const Layout & layout, const uint8_t * data, size_t n, std::vector<FieldUse> & use);

private:
    StreamEncoder encoder_;
    Bytes streams_, coded_;
};

class FrameDecoder {
public:
    // Throws Damaged unless it makes exactly n bytes.
    void decode(const Layout & layout, const uint8_t * coded, size_t n_coded, uint8_t * data, size_t n);

private:
    StreamDecoder decoder_;
    Bytes streams_;
};

}  // namespace pyquant::pqz
