#include "compensate/codec.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "compensate/block_formats.h"
#include "compensate/encoder.h"
#include "compensate/super_formats.h"

namespace pyquant {
namespace {

constexpr int8_t kIq4Nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

TableLevels iq4_nl() {
    uint8_t codes[16];
    std::iota(codes, codes + 16, uint8_t(0));
    return TableLevels(kIq4Nl, codes, 16);
}

template <class Format>
class CompensatedCodec : public Codec {
public:
    // layout: the stock type whose blocks are laid out in this way.
    CompensatedCodec(ggml_type layout, std::unique_ptr<Codec> stored, std::shared_ptr<const Factor> factor,
                     const Format & format)
        : layout_(layout), stored_(std::move(stored)), factor_(std::move(factor)), format_(format) {
        for (int64_t k = 0; k < factor_->n(); ++k) {
            for (const int64_t together : {int64_t(kSub), int64_t(Format::Stored::kSubs * kSub)}) {
                const int64_t first = k / together * together;
                if (factor_->n() % together != 0 ||
                    factor_->order[size_t(k)] / together != factor_->order[size_t(first)] / together) {
                    throw std::invalid_argument("factor: parts columns that share a scale in this type");
                }
            }
        }
    }

    int64_t block_size() const override { return stored_->block_size(); }

    int64_t row_bytes(int64_t n_per_row) const override { return stored_->row_bytes(n_per_row); }

    int64_t rows_at_once(int64_t) const override { return 4 * kRows; }

    void encode(const float * x, int64_t n_rows, int64_t n_per_row, const float *, void * rows) const override {
        if (n_per_row != factor_->n()) {
            throw std::invalid_argument("factor: of inputs of another size");
        }
        check_finite(x, n_rows * n_per_row);
        Encoder<Format> encoder(*factor_, format_);
        uint8_t * out = static_cast<uint8_t *>(rows);
        for (int64_t row = 0; row < n_rows; row += kRows) {
            encoder.encode(x + row * n_per_row, std::min<int64_t>(kRows, n_rows - row), out + row * row_bytes(n_per_row));
        }
        check_stored(layout_, rows, size_t(n_rows * row_bytes(n_per_row)), x, n_rows * n_per_row);
    }

    void decode(const void * rows, int64_t n_rows, int64_t n_per_row, float * x) const override {
        stored_->decode(rows, n_rows, n_per_row, x);
    }

private:
    ggml_type layout_;
    std::unique_ptr<Codec> stored_;
    std::shared_ptr<const Factor> factor_;
    Format format_;
};

template <class Format>
std::unique_ptr<Codec> make(ggml_type layout, std::unique_ptr<Codec> stored, std::shared_ptr<const Factor> factor,
                            const Format & format) {
    return std::make_unique<CompensatedCodec<Format>>(layout, std::move(stored), std::move(factor), format);
}

template <class Format>
std::unique_ptr<Codec> make(ggml_type type, std::shared_ptr<const Factor> factor, const Format & format) {
    return make(type, ggml_codec(type), std::move(factor), format);
}

}  // namespace

std::unique_ptr<Codec> compensated_codec(ggml_type type, std::shared_ptr<const Factor> factor) {
    switch (type) {
        case GGML_TYPE_Q4_0:
            return make(type, factor, BlockFormat<IntegerLevels, BlockQ4_0>({-8, 7, -8}));
        case GGML_TYPE_IQ4_NL:
            return make(type, factor, BlockFormat<TableLevels, BlockQ4_0>(iq4_nl()));
        case GGML_TYPE_IQ4_XS: return make(type, factor, Iq4XsFormat(iq4_nl()));
        case GGML_TYPE_Q4_K: return make(type, factor, KFormat<4>());
        case GGML_TYPE_Q5_K: return make(type, factor, KFormat<5>());
        default: throw std::invalid_argument(std::string("no compensation for type ") + ggml_type_name(type));
    }
}

std::unique_ptr<Codec> compensated_table_codec(Container container, const int8_t * values,
                                               const uint8_t * codes, int n, const Table & table,
                                               std::shared_ptr<const Factor> factor) {
    const TableLevels levels(values, codes, n);
    switch (container) {
        case Container::q8_0:
            return make(GGML_TYPE_Q8_0, factor, BlockFormat<TableLevels, BlockQ8_0>(levels));
        case Container::q4_0:
            return make(GGML_TYPE_Q4_0, factor, BlockFormat<TableLevels, BlockQ4_0>(levels));
        case Container::q4_t:
            return make(GGML_TYPE_Q4_0, table_codec(table), factor, BlockFormat<TableLevels, BlockQ4_0>(levels));
    }
    throw std::invalid_argument("no such container");
}

std::unique_ptr<Codec> uniform_codec(uint16_t step, std::shared_ptr<const Factor> factor) {
    return make(GGML_TYPE_Q8_0, factor, UniformFormat(step));
}

int columns_together(ggml_type type) {
    return std::max<int>(kSub, int(ggml_blck_size(type)));
}

}  // namespace pyquant
