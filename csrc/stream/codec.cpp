#include "stream/codec.h"

#include <algorithm>
#include <cmath>

#include "ggml-quants.h"
#include "kernels/block.h"
#include "kernels/half.h"
#include "llama/abort_guard.h"
#include "stream/chunks.h"

namespace pyquant::stream {

using namespace kernels;

namespace {

// Above it a weight does not fit, though no scale is infinite: GGML has no code for a scale that NVFP4 does
// not reach, and limits it.
float largest_weight(ggml_type type) {
    return type == GGML_TYPE_NVFP4 ? 6 * 448 : INFINITY;
}

class GgmlEncoder : public Encoder {
public:
    explicit GgmlEncoder(ggml_type type) : type_(type) {}

    int64_t block_size() const override { return ggml_blck_size(type_); }

    int64_t row_bytes(int64_t n_per_row) const override { return int64_t(ggml_row_size(type_, n_per_row)); }

    void encode(const float * x, int64_t, int64_t n_rows, int64_t n_per_row, const float * importance,
                void * rows) const override {
        const int64_t n = n_rows * n_per_row;
        check_finite(x, n);
        check_stored(type_, rows, quantize(x, n_rows, n_per_row, importance, rows), x, n);
    }

    void decode(const void * rows, int64_t n_rows, int64_t n_per_row, float * x) const override {
        ggml_get_type_traits(type_)->to_float(rows, x, n_rows * n_per_row);
    }

protected:
    const ggml_type type_;

private:
    // It asserts that very low bits have an importance matrix, and that points of a lattice are found.
    size_t quantize(const float * x, int64_t n_rows, int64_t n_per_row, const float * importance,
                    void * rows) const {
        const in_llama::AbortGuard guard;
        return ggml_quantize_chunk(type_, x, rows, 0, n_rows, n_per_row, importance);
    }
};

// GGML's own conversions know nothing of the CPU's instructions.
class FloatEncoder : public GgmlEncoder {
public:
    using GgmlEncoder::GgmlEncoder;

    void encode(const float * x, int64_t first_row, int64_t n_rows, int64_t n_per_row,
                const float * importance, void * rows) const override {
        if (type_ != GGML_TYPE_F16) {
            return GgmlEncoder::encode(x, first_row, n_rows, n_per_row, importance, rows);
        }
        const int64_t n = n_rows * n_per_row;
        check_finite(x, n);
        floats_to_halves(x, n, static_cast<uint16_t *>(rows));
        check_stored(type_, rows, size_t(n) * sizeof(uint16_t), x, n);
    }

    void decode(const void * rows, int64_t n_rows, int64_t n_per_row, float * x) const override {
        const int64_t n = n_rows * n_per_row;
        switch (type_) {
            case GGML_TYPE_F16: halves_to_floats(static_cast<const uint16_t *>(rows), n, x); break;
            case GGML_TYPE_BF16: bfloats_to_floats(static_cast<const uint16_t *>(rows), n, x); break;
            default: std::memcpy(x, rows, size_t(n) * sizeof(float)); break;
        }
    }
};

class SchemeEncoder : public Encoder {
public:
    explicit SchemeEncoder(const Scheme & scheme) : scheme_(scheme) {}

    int64_t block_size() const override { return kBlock; }

    int64_t row_bytes(int64_t n_per_row) const override {
        return storage_bytes(scheme_.storage, n_per_row / kBlock);
    }

    void encode(const float * x, int64_t, int64_t n_rows, int64_t n_per_row, const float * importance,
                void * rows) const override {
        const int64_t n_blocks = n_rows * n_per_row / kBlock;
        if (importance && scheme_.grid == Grid::q4_0) {  // GGML's weighted search, then the fold
            check_finite(x, n_rows * n_per_row);
            quantize_q4_0(x, rows, n_rows, n_per_row, importance);
            fold(scheme_, rows, n_blocks);
            const size_t size = size_t(n_rows * row_bytes(n_per_row));
            check_stored(GGML_TYPE_Q4_0, rows, size, x, n_rows * n_per_row);
            return;
        }
        const int64_t bad = kernels::encode(scheme_, x, n_blocks, rows);
        if (bad < n_blocks) {
            const float * block = x + bad * kBlock;
            int extreme = 0;
            for (int j = 0; j < kBlock; ++j) {
                if (!std::isfinite(block[j])) {
                    throw BadWeight(bad * kBlock + j, block[j]);
                }
                extreme = std::fabs(block[j]) > std::fabs(block[extreme]) ? j : extreme;
            }
            throw BadWeight(bad * kBlock + extreme, block[extreme]);
        }
    }

    void decode(const void * rows, int64_t n_rows, int64_t n_per_row, float * x) const override {
        const int64_t n_blocks = n_rows * n_per_row / kBlock;
        scheme_.storage == Storage::q4_t
            ? decode_table(scheme_.table, static_cast<const BlockQ4_0 *>(rows), n_blocks, x)
            : kernels::decode(scheme_.storage, rows, n_blocks, x);
    }

private:
    Scheme scheme_;
};

class NumberDecoder : public Decoder {
public:
    explicit NumberDecoder(ggml_type type) : type_(type) {}

    int64_t block_size() const override { return ggml_blck_size(type_); }

    int64_t row_bytes(int64_t n_per_row) const override { return int64_t(ggml_row_size(type_, n_per_row)); }

    void decode(const void * rows, int64_t n_rows, int64_t n_per_row, float * x) const override {
        const int64_t n = n_rows * n_per_row;
        std::fill_n(x, n, 0.0f);
        if (type_ == GGML_TYPE_F64) {
            const double * numbers = static_cast<const double *>(rows);
            std::transform(numbers, numbers + n, x,
                           [](double number) { return std::isfinite(number) ? 0.0f : float(number); });
        }
    }

private:
    const ggml_type type_;
};

class TableDecoder : public Decoder {
public:
    explicit TableDecoder(const Table & table) { std::copy_n(table, 16, table_); }

    int64_t block_size() const override { return kBlock; }

    int64_t row_bytes(int64_t n_per_row) const override {
        return storage_bytes(Storage::q4_t, n_per_row / kBlock);
    }

    void decode(const void * rows, int64_t n_rows, int64_t n_per_row, float * x) const override {
        decode_table(table_, static_cast<const BlockQ4_0 *>(rows), n_rows * n_per_row / kBlock, x);
    }

private:
    Table table_;
};

}  // namespace

BadWeight::BadWeight(int64_t index, float value)
    : std::runtime_error(std::isfinite(value) ? "scale overflows fp16" : "weight is not finite"),
      index(index),
      value(value) {}

std::unique_ptr<Encoder> ggml_encoder(ggml_type type) {
    if (type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16) {
        return std::make_unique<FloatEncoder>(type);
    }
    if (!ggml_is_quantized(type) || !ggml_get_type_traits(type)->to_float) {
        throw std::invalid_argument(std::string("no weights in type ") + ggml_type_name(type));
    }
    return std::make_unique<GgmlEncoder>(type);
}

std::unique_ptr<Decoder> ggml_decoder(ggml_type type) {
    return ggml_encoder(type);
}

std::unique_ptr<Decoder> number_decoder(ggml_type type) {
    return std::make_unique<NumberDecoder>(type);
}

std::unique_ptr<Encoder> scheme_encoder(const Scheme & scheme) {
    return std::make_unique<SchemeEncoder>(scheme);
}

std::unique_ptr<Decoder> table_decoder(const Table & table) {
    return std::make_unique<TableDecoder>(table);
}

void check_stored(ggml_type type, const void * rows, size_t size, const float * x, int64_t n) {
    const float largest = largest_weight(type);
    const bool fits = std::isinf(largest)
                          ? ggml_validate_row_data(type, rows, size)
                          : std::all_of(x, x + n, [&](float w) { return std::fabs(w) <= largest; });
    if (!fits) {
        const auto smaller = [](float a, float b) { return std::fabs(a) < std::fabs(b); };
        const int64_t extreme = std::max_element(x, x + n, smaller) - x;
        throw BadWeight(extreme, x[extreme]);
    }
}

void check_finite(const float * x, int64_t n, int64_t first) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t magnitude = bits_of(x[i]) & 0x7fffffff;
        largest = magnitude > largest ? magnitude : largest;
    }
    if (largest < 0x7f800000) {
        return;
    }
    for (int64_t i = 0; i < n; ++i) {
        if (!std::isfinite(x[i])) {
            throw BadWeight(first + i, x[i]);
        }
    }
}

}  // namespace pyquant::stream
