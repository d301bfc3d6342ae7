// Q4_K: weight = code * scale - minimum, codes of 4 bits.
#include "gptq/formats/k_format.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

const Registration q4_k(GGML_TYPE_Q4_K, KFormat<4>());

}  // namespace
}  // namespace pyquant::gptq
