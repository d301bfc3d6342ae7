// The compensating quantizer as a codec of the stream.
#pragma once

#include <memory>

#include "compensate/factor.h"
#include "stream/codec.h"

namespace pyquant {

// Blocks of `type` (Q4_0, IQ4_NL, IQ4_XS, Q4_K or Q5_K). Throws std::invalid_argument for other types.
std::unique_ptr<Codec> compensated_codec(ggml_type type, std::shared_ptr<const Factor> factor);

// Blocks of 16 values, ascending, kept in the container as a scheme's are.
std::unique_ptr<Codec> compensated_table_codec(const int8_t value[16], std::shared_ptr<const Factor> factor);

// Columns that share a scale in `type`.
int columns_together(ggml_type type);

}  // namespace pyquant
