// Q4_0: weight = (code - 8) * scale.
#include "compensate/compensated_encoder.h"
#include "compensate/formats/code_layouts.h"
#include "compensate/formats/one_scale.h"

namespace pyquant::compensate {
namespace {

const Registration q4_0(GGML_TYPE_Q4_0, OneScale<IntegerLevels, Nibbles>({-8, 7, -8}));

}  // namespace
}  // namespace pyquant::compensate
