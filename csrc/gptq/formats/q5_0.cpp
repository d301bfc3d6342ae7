// Q5_0: weight = (code - 16) * scale, codes of 5 bits.
#include "gptq/formats/code_layouts.h"
#include "gptq/formats/one_scale.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

const Registration q5_0(GGML_TYPE_Q5_0, OneScale<IntegerLevels, FiveBits>({-16, 15, -16}));

}  // namespace
}  // namespace pyquant::gptq
