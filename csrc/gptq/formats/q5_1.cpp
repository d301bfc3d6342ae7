// Q5_1: weight = code * scale - minimum, codes of 5 bits.
#include "gptq/formats/code_layouts.h"
#include "gptq/formats/scale_and_minimum.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

const Registration q5_1(GGML_TYPE_Q5_1, OneScaleAndMinimum<FiveBits, 31>());

}  // namespace
}  // namespace pyquant::gptq
