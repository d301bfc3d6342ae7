// Q5_K: weight = code * scale - minimum, codes of 5 bits.
#include "gptq/formats/k_format.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

const Registration q5_k(GGML_TYPE_Q5_K, KFormat<5>());

}  // namespace
}  // namespace pyquant::gptq
