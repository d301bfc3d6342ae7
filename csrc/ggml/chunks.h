// Cuts a matrix into chunks of rows, which threads take when they are free.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pyquant::in_ggml {

// About so many bytes of weights are a chunk. They stay in the cache for all columns of activations; and each
// chunk begins a stream through memory that the CPU has to foresee anew, so short chunks are slow.
constexpr int64_t kChunkBytes = 256 << 10;

// Rows, or groups of rows, of a chunk, so that every thread has as many chunks.
inline int64_t rows_per_chunk(int64_t n_rows, int64_t row_bytes, int64_t n_threads) {
    const int64_t all = n_threads * kChunkBytes;
    const int64_t each = std::max<int64_t>(1, (n_rows * row_bytes + all / 2) / all);
    return (n_rows + each * n_threads - 1) / (each * n_threads);
}

}  // namespace pyquant::in_ggml
