// Q5_K: weight = code * scale - minimum, codes of 5 bits.
#include "compensate/compensated_encoder.h"
#include "compensate/formats/k_format.h"

namespace pyquant::compensate {
namespace {

const Registration q5_k(GGML_TYPE_Q5_K, KFormat<5>());

}  // namespace
}  // namespace pyquant::compensate
