// Q4_K: weight = code * scale - minimum, codes of 4 bits.
#include "compensate/compensated_encoder.h"
#include "compensate/formats/k_format.h"

namespace pyquant::compensate {
namespace {

const Registration q4_k(GGML_TYPE_Q4_K, KFormat<4>());

}  // namespace
}  // namespace pyquant::compensate
