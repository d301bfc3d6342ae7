// Rounding in which rows absorb the errors of rows before them: pyquant/rounding/output_side.py says why.
#pragma once

#include <cstdint>

#include "gptq/factor.h"
#include "stream/codec.h"

namespace pyquant::gptq {

// Rounds a matrix of (n_rows, n_in) weights by an encoder, n_in a multiple of 32.
//
// rows: of the outputs' Hessian, with rows in the place of columns, and more than n_rows in the last 32.
// together: rows that are rounded at a time, none of which knows of the others' errors: a multiple of 32.
// stored: (n_rows, row_bytes); values: (n_rows, n_in), what is stored, decoded.
void round_rows(const float * weights, int64_t n_rows, int64_t n_in, const Factor & rows, int64_t together,
                const stream::Encoder & encoder, int n_threads, uint8_t * stored, float * values);

}  // namespace pyquant::gptq
