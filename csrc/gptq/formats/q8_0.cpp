// Q8_0: weight = code * scale, codes of 8 bits.
#include "gptq/formats/code_layouts.h"
#include "gptq/formats/one_scale.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

const Registration q8_0(GGML_TYPE_Q8_0, OneScale<IntegerLevels, Bytes>({-127, 127, 0}));

}  // namespace
}  // namespace pyquant::gptq
