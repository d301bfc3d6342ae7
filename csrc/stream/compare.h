// One pass over two tensors of one shape, stored in any two types: what makes the second differ from
// the first. Both are read in chunks of rows and measured in cache, as a pass over one tensor is.
#pragma once

#include "stream/pass.h"

namespace pyquant::stream {

// The place of a tensor's rows, and how they are stored.
struct StoredTensor {
    int file;
    int64_t offset;
    const Decoder * decoder;
};

struct Comparison {
    int64_t n_rows;
    int64_t n_per_row;
    StoredTensor base;
    StoredTensor other;

    const float * importance = nullptr;  // (n_experts, n_per_row), or null
    int64_t rows_per_expert = 0;         // rows that share one row of importance

    bool count = false;     // count the codes of other
    bool nibbles = false;   // they are nibbles (else bytes)
    uint8_t zero_code = 0;  // the code whose runs are counted

    int n_threads = 1;
};

// Errors of other against base. An infinity or a NaN in either makes the sums so.
struct ComparisonResult : PassResult {
    kernels::WeightedError weighted;  // zeros without importance
};

// tick: as for a pass, with the bytes read of both. Throws ReadError. Results do not depend on
// n_threads.
ComparisonResult compare(const Comparison & comparison, const std::function<void(int64_t)> & tick);

}  // namespace pyquant::stream
