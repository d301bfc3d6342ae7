// Operations that serve tensors in every buffer of the CPU, beside those of type Q4_T.
#pragma once

#include <vector>

#include "ggml.h"
#include "traits.h"

namespace pyquant::in_ggml {

// Returns what computes an operation, or nullptr where it is left to GGML.
using Provider = ggml::cpu::tensor_traits * (*)(const ggml_tensor * op);

// Asked in turn. Filled while the library is loaded, before any operation runs.
inline std::vector<Provider> & providers() {
    static std::vector<Provider> list;
    return list;
}

}  // namespace pyquant::in_ggml
