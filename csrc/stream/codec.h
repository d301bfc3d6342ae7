// Conversion of rows of weights to stored rows (Encoder) and back (Decoder): one interface over floats,
// pyquant's own schemes and every type that GGML knows.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>

#include "ggml.h"
#include "kernels/scheme.h"

namespace pyquant::stream {

// A weight that cannot be encoded: it is not finite, or its scale overflows fp16. index: in the span that
// was given to encode.
struct BadWeight : std::runtime_error {
    BadWeight(int64_t index, float value);

    int64_t index;
    float value;
};

// Reads stored rows.
class Decoder {
public:
    virtual ~Decoder() = default;

    // Weights of a row that are stored together: rows are a multiple of it.
    virtual int64_t block_size() const = 0;

    virtual int64_t row_bytes(int64_t n_per_row) const = 0;

    virtual void decode(const void * rows, int64_t n_rows, int64_t n_per_row, float * x) const = 0;
};

// Makes stored rows, and reads what it has made.
class Encoder : public Decoder {
public:
    // Rows that take as long as one of them: threads share a matrix in so many; 1 where each takes its time.
    virtual int64_t rows_together() const { return 1; }

    // first_row: the place of the first of these rows in the matrix. importance: (n_per_row,) or null. Throws
    // BadWeight, and std::runtime_error where GGML's quantizer fails an assertion.
    virtual void encode(const float * x, int64_t first_row, int64_t n_rows, int64_t n_per_row,
                        const float * importance, void * rows) const = 0;
};

// Stored rows that are no weights to quantize, and are only copied: integers, F64, and types whose blocks
// GGML does not decode. decode gives 0 for what it does not know, and of F64 whether it is finite.
std::unique_ptr<Decoder> number_decoder(ggml_type type);

// Any GGML type; for F32, F16 and BF16 with pyquant's own conversions. Throws std::invalid_argument
// where no weights are stored in a type.
std::unique_ptr<Decoder> ggml_decoder(ggml_type type);
std::unique_ptr<Encoder> ggml_encoder(ggml_type type);

std::unique_ptr<Encoder> scheme_encoder(const kernels::Scheme & scheme);

// Decodes stored Q4_T blocks. A table alone does not say how weights become its codes.
std::unique_ptr<Decoder> table_decoder(const kernels::Table & table);

// Throws BadWeight at the first infinity or NaN. first: the index that it is to give x[0].
void check_finite(const float * x, int64_t n, int64_t first = 0);

// rows: `size` bytes of `type` that n weights x became. Throws BadWeight where a scale is infinite, or
// would be above what the type has: the weight of largest magnitude is why.
void check_stored(ggml_type type, const void * rows, size_t size, const float * x, int64_t n);

}  // namespace pyquant::stream
