// Q5_0: weight = (code - 16) * scale, codes of 5 bits.
#include "compensate/compensated_encoder.h"
#include "compensate/formats/code_layouts.h"
#include "compensate/formats/one_scale.h"

namespace pyquant::compensate {
namespace {

const Registration q5_0(GGML_TYPE_Q5_0, OneScale<IntegerLevels, FiveBits>({-16, 15, -16}));

}  // namespace
}  // namespace pyquant::compensate
