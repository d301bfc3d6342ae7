// Attention of a few queries to the same keys and values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pyquant::kernels {

constexpr int kMostQueries = 4;  // that are computed at once
constexpr int kCellsAtOnce =
    16;  // whose weights are computed together; their number has to be a multiple of it

// Keys and values of a head, in F16; a cell is a token that may be attended to.
struct Cells {
    const char * keys;
    size_t key_bytes;  // from one cell to the next
    const char * values;
    size_t value_bytes;
    int64_t n;
};

struct Query {
    const float * x;        // of a head's size, rounded to F16
    const uint16_t * mask;  // (n,) F16, added to scores; may be null
    float * out;            // of a head's size
};

// How many queries are computed at once with heads of this size; 0: there is no path.
int few_queries(int64_t size);

// Floats of a register.
int few_query_lanes();

// out = sum over cells of weight * value / sum of weights; weight = exp(scale * (query . key) + mask - the
// largest of them so far), corrected as a larger one comes. Numpy twin:
// tests/generation/twins/few_queries.py.
void attend_few(const Cells & cells, int64_t size, const Query * queries, int n_queries, float scale);

}  // namespace pyquant::kernels
