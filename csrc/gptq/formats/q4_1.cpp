// Q4_1: weight = code * scale - minimum, codes of 4 bits.
#include "gptq/formats/code_layouts.h"
#include "gptq/formats/scale_and_minimum.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

const Registration q4_1(GGML_TYPE_Q4_1, OneScaleAndMinimum<Nibbles, 15>());

}  // namespace
}  // namespace pyquant::gptq
