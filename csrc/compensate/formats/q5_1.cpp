// Q5_1: weight = code * scale - minimum, codes of 5 bits.
#include "compensate/compensated_encoder.h"
#include "compensate/formats/code_layouts.h"
#include "compensate/formats/scale_and_minimum.h"

namespace pyquant::compensate {
namespace {

const Registration q5_1(GGML_TYPE_Q5_1, OneScaleAndMinimum<FiveBits, 31>());

}  // namespace
}  // namespace pyquant::compensate
