// Q8_0: weight = code * scale, codes of 8 bits.
#include "compensate/compensated_encoder.h"
#include "compensate/formats/code_layouts.h"
#include "compensate/formats/one_scale.h"

namespace pyquant::compensate {
namespace {

const Registration q8_0(GGML_TYPE_Q8_0, OneScale<IntegerLevels, Bytes>({-127, 127, 0}));

}  // namespace
}  // namespace pyquant::compensate
