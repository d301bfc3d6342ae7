// Blocks with one scale whose codes stand for the values of a table: what schemes are stored in.
#include "compensate/codec.h"
#include "compensate/compensated_codec.h"
#include "compensate/formats/one_scale.h"

namespace pyquant {

std::unique_ptr<Codec> compensated_table_codec(Container container, const int8_t * values,
                                               const uint8_t * codes, int n, const Table & table,
                                               std::shared_ptr<const Factor> factor) {
    const TableLevels levels(values, codes, n);
    const OneScale<TableLevels, Nibbles> nibbles(levels);
    switch (container) {
        case Container::q8_0:
            return make_codec(GGML_TYPE_Q8_0, ggml_codec(GGML_TYPE_Q8_0), std::move(factor),
                              OneScale<TableLevels, Bytes>(levels));
        case Container::q4_0:
            return make_codec(GGML_TYPE_Q4_0, ggml_codec(GGML_TYPE_Q4_0), std::move(factor), nibbles);
        case Container::q4_t: return make_codec(GGML_TYPE_Q4_0, table_codec(table), std::move(factor), nibbles);
    }
    throw std::invalid_argument("no such container");
}

}  // namespace pyquant
