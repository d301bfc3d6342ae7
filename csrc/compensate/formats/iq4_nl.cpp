// IQ4_NL: weight = table[code] * scale.
#include "compensate/compensated_encoder.h"
#include "compensate/formats/code_layouts.h"
#include "compensate/formats/iq4_levels.h"
#include "compensate/formats/one_scale.h"

namespace pyquant::compensate {
namespace {

const Registration iq4_nl(GGML_TYPE_IQ4_NL, OneScale<TableLevels, Nibbles>(iq4_levels()));

}  // namespace
}  // namespace pyquant::compensate
