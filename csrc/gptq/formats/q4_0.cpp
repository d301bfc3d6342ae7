// Q4_0: weight = (code - 8) * scale.
#include "gptq/formats/code_layouts.h"
#include "gptq/formats/one_scale.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

const Registration q4_0(GGML_TYPE_Q4_0, OneScale<IntegerLevels, Nibbles>({-8, 7, -8}));

}  // namespace
}  // namespace pyquant::gptq
