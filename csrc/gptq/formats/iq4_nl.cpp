// IQ4_NL: weight = table[code] * scale.
#include "gptq/formats/code_layouts.h"
#include "gptq/formats/iq4_levels.h"
#include "gptq/formats/one_scale.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

const Registration iq4_nl(GGML_TYPE_IQ4_NL, OneScale<TableLevels, Nibbles>(iq4_levels()));

}  // namespace
}  // namespace pyquant::gptq
