// Matrix products with few columns of activations, as a model makes them for a few tokens at once. A weight
// is read and converted once for all columns. A sum has the order that GGML has in its products with two
// columns and more: one sum in each lane of a vector register, which are added in pairs at the end. So the
// results are GGML's to the bit, and those of a column do not depend on how many there are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/block.h"

namespace pyquant::kernels {

enum class FewWeights : uint8_t { f16, bf16, q8_0 };

inline constexpr int kFewColumns = 8;  // that are multiplied at once, at most

// Columns that are multiplied fastest at once: so many sums stay in registers. 0 where this build has no
// path.
int few_tile(FewWeights type);

// Sums of a product that are added at the end; 0 where this build has no path.
int few_lanes(FewWeights type);

// The number of weights of a row is a multiple of it.
int few_step(FewWeights type);

// Whether a lane takes two products at a step, of weights 2 i + 1 and 2 i in this order.
bool few_pairs(FewWeights type);

// Bytes of a column of n activations that are ready to be multiplied, a multiple of 64.
size_t prepared_bytes(FewWeights type, int64_t n);

// converted: activations begin .. begin + n - 1 of a column, in the type that GGML converts them to: fp16,
// bf16 or Q8_0. column: memory of the whole column. begin and n are multiples of kBlock.
void prepare(FewWeights type, const void * converted, int64_t begin, int64_t n, void * column);

// y[c * y_stride + row]: the products of n_rows rows of n weights, row_bytes apart, with n_columns <=
// kFewColumns columns, prepared_bytes apart.
void multiply_few(FewWeights type, const void * rows, size_t row_bytes, int64_t n_rows, int64_t n,
                  const void * columns, int n_columns, float * y, int64_t y_stride);

}  // namespace pyquant::kernels
