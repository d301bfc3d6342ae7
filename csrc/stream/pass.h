// One pass over a tensor: read it in chunks of rows and, while a chunk is in cache, encode it,
// measure what that did, count its codes, write it and hand out the values that it now has. Threads
// share the tensor; memory is bounded by a few MB for each of them, whatever the tensor's size.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/count.h"
#include "kernels/error.h"
#include "stream/codec.h"

namespace pyquant::stream {

struct Pass {
    // The place of the tensor: n_rows rows of n_per_row weights, in a file from in_offset on or, if that is
    // not null, in memory.
    int in_file;
    int64_t in_offset;
    int64_t n_rows;
    int64_t n_per_row;
    const Decoder * source;
    const void * in_memory = nullptr;

    // Encoder that it goes through; null: its bytes stay as they are.
    const Encoder * target = nullptr;
    const float * importance = nullptr;  // (n_experts, n_per_row), or null
    int64_t rows_per_expert = 0;         // rows that share one row of importance

    // The file that it goes to; -1: none, only results are wanted.
    int out_file = -1;
    int64_t out_offset = 0;

    // Memory for the values that target made of the weights, stored by another encoder; null: none.
    void * copy = nullptr;
    const Encoder * copy_as = nullptr;

    bool check = false;     // refuse infinities and NaNs in weights that are copied
    bool measure = false;   // compare what target made of the weights with them
    bool count = false;     // count the codes of what comes out
    bool nibbles = false;   // its codes are nibbles (else bytes)
    uint8_t zero_code = 0;  // the code whose runs are counted

    int n_threads = 1;
};

struct PassResult {
    kernels::Error error;
    kernels::CodeCounts counts;
};

// tick(n) is called on the calling thread, several times a second and at the end, with the bytes
// read so far; what it throws ends the pass. Throws BadWeight with the index in the tensor,
// ReadError and WriteError. Results do not depend on n_threads.
PassResult run(const Pass & pass, const std::function<void(int64_t)> & tick);

}  // namespace pyquant::stream
