// GPTQ as an encoder.
#pragma once

#include <memory>
#include <vector>

#include "gptq/factor.h"
#include "stream/codec.h"

namespace pyquant::gptq {

// The types that there is a format for, by their numbers.
std::vector<ggml_type> gptq_types();

// Blocks of one of these types. Throws std::invalid_argument for others.
std::unique_ptr<stream::Encoder> gptq_encoder(ggml_type type, std::shared_ptr<const Factor> factor);

// Blocks of one of these types for weights that lie on its lattice, n in a row, and were rounded to
// significands of `bits` bits. Null: the type has no lattice.
std::unique_ptr<stream::Encoder> lattice_encoder(ggml_type type, int64_t n, int bits);

// Blocks with one scale (Q4_0, Q8_0 or Q4_T) whose codes stand for n ascending values, at most 16. table:
// of Q4_T blocks, what all codes stand for.
std::unique_ptr<stream::Encoder> gptq_table_encoder(kernels::Storage storage, const int8_t * values,
                                                    const uint8_t * codes, int n,
                                                    const kernels::Table & table,
                                                    std::shared_ptr<const Factor> factor);

// Q8_0 blocks whose scale, an fp16, is given for each row of the matrix; a single one is that of all rows.
std::unique_ptr<stream::Encoder> ecsq_encoder(const std::vector<uint16_t> & steps,
                                              std::shared_ptr<const Factor> factor);

// Columns that share a scale, or a block, in `type`.
Together columns_together(ggml_type type);

}  // namespace pyquant::gptq
