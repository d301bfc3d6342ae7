// Q4_1: weight = code * scale - minimum, codes of 4 bits.
#include "compensate/compensated_encoder.h"
#include "compensate/formats/code_layouts.h"
#include "compensate/formats/scale_and_minimum.h"

namespace pyquant::compensate {
namespace {

const Registration q4_1(GGML_TYPE_Q4_1, OneScaleAndMinimum<Nibbles, 15>());

}  // namespace
}  // namespace pyquant::compensate
