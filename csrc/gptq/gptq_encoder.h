// GPTQ to any format, as an encoder.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>

#include "gptq/lattice.h"
#include "gptq/rounder.h"
#include "stream/codec.h"

namespace pyquant::gptq {

template <class Format>
class GptqEncoder : public stream::Encoder {
public:
    // layout: the stock type whose blocks are laid out in this way; stored: decodes them.
    GptqEncoder(ggml_type layout, std::unique_ptr<stream::Decoder> stored,
                std::shared_ptr<const Factor> factor, const Format & format)
        : layout_(layout),
          stored_(std::move(stored)),
          factor_(std::move(factor)),
          format_(format) {
        for (int64_t k = 0; k < factor_->n(); ++k) {
            for (const int64_t together :
                 {int64_t(Format::Stored::kColumns), int64_t(Format::Stored::kSuper)}) {
                const int64_t first = k / together * together;
                if (factor_->n() % together != 0 ||
                    factor_->order[size_t(k)] / together != factor_->order[size_t(first)] / together) {
                    throw std::invalid_argument("factor: parts columns that share a scale in this type");
                }
            }
            const int64_t in_group = k % LevelsOf<Format>::kGroup;
            if (factor_->order[size_t(k)] != factor_->order[size_t(k - in_group)] + in_group) {
                throw std::invalid_argument("factor: parts columns that are rounded together in this type");
            }
        }
    }

    int64_t block_size() const override { return stored_->block_size(); }

    int64_t row_bytes(int64_t n_per_row) const override { return stored_->row_bytes(n_per_row); }

    int64_t rows_together() const override { return kRows; }

    void encode(const float * x, int64_t first_row, int64_t n_rows, int64_t n_per_row, const float *,
                void * rows) const override {
        if (n_per_row != factor_->n()) {
            throw std::invalid_argument("factor: of inputs of another size");
        }
        stream::check_finite(x, n_rows * n_per_row);
        Rounder<Format> rounder(*factor_, format_);
        uint8_t * out = static_cast<uint8_t *>(rows);
        for (int64_t row = 0; row < n_rows; row += kRows) {
            rounder.round(x + row * n_per_row, first_row + row, std::min<int64_t>(kRows, n_rows - row),
                          out + row * row_bytes(n_per_row));
        }
        stream::check_stored(layout_, rows, size_t(n_rows * row_bytes(n_per_row)), x, n_rows * n_per_row);
    }

    void decode(const void * rows, int64_t n_rows, int64_t n_per_row, float * x) const override {
        stored_->decode(rows, n_rows, n_per_row, x);
    }

private:
    ggml_type layout_;
    std::unique_ptr<stream::Decoder> stored_;
    std::shared_ptr<const Factor> factor_;
    Format format_;
};

template <class Format>
std::unique_ptr<stream::Encoder> make_encoder(ggml_type layout, std::unique_ptr<stream::Decoder> stored,
                                              std::shared_ptr<const Factor> factor, const Format & format) {
    return std::make_unique<GptqEncoder<Format>>(layout, std::move(stored), std::move(factor), format);
}

// Says, where it is defined, by which format weights become blocks of a GGML type. Every format of a type
// defines one in its file of formats/: there is no other list.
class Registration {
public:
    struct Format {
        std::function<std::unique_ptr<stream::Encoder>(std::shared_ptr<const Factor>)> make;
        std::function<std::unique_ptr<stream::Encoder>(std::shared_ptr<const Factor>, int bits)>
            make_on_lattice;
        int columns_of_group, columns_of_scale;
    };

    template <class BlockFormat>
    Registration(ggml_type type, const BlockFormat & format) {
        const auto encoder = [type](std::shared_ptr<const Factor> factor, const auto & its_format) {
            return make_encoder(type, stream::ggml_decoder(type), std::move(factor), its_format);
        };
        Format made{[=](std::shared_ptr<const Factor> factor) { return encoder(std::move(factor), format); },
                    {},  // most types have no lattice
                    LevelsOf<BlockFormat>::kGroup,
                    BlockFormat::Stored::kColumns};
        if constexpr (kHasLattice<BlockFormat>) {
            made.make_on_lattice = [=](std::shared_ptr<const Factor> factor, int bits) {
                return encoder(std::move(factor), OnLattice<BlockFormat>(format, bits));
            };
        }
        add(type, std::move(made));
    }

private:
    static void add(ggml_type type, Format format);
};

}  // namespace pyquant::gptq
