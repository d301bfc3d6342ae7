// Blocks with one scale whose codes stand for the values of a table: what schemes are stored in.
#include "gptq/encoders.h"
#include "gptq/formats/code_layouts.h"
#include "gptq/formats/one_scale.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {

std::unique_ptr<stream::Encoder> gptq_table_encoder(kernels::Storage storage, const int8_t * values,
                                                    const uint8_t * codes, int n,
                                                    const kernels::Table & table,
                                                    std::shared_ptr<const Factor> factor) {
    const TableLevels levels(values, codes, n);
    const OneScale<TableLevels, Nibbles> nibbles(levels);
    switch (storage) {
        case kernels::Storage::q8_0:
            return make_encoder(GGML_TYPE_Q8_0, stream::ggml_decoder(GGML_TYPE_Q8_0), std::move(factor),
                                OneScale<TableLevels, Bytes>(levels));
        case kernels::Storage::q4_0:
            return make_encoder(GGML_TYPE_Q4_0, stream::ggml_decoder(GGML_TYPE_Q4_0), std::move(factor),
                                nibbles);
        case kernels::Storage::q4_t:
            return make_encoder(GGML_TYPE_Q4_0, stream::table_decoder(table), std::move(factor), nibbles);
    }
    throw std::invalid_argument("no such storage");
}

}  // namespace pyquant::gptq
