// Names that llama.cpp gives to nodes of its graphs, and to tensors.
#pragma once

#include <string>

#include "ggml.h"

namespace pyquant::calibrate {

inline constexpr const char * kLastHiddenState = "result_norm";

// Matrix by which models multiply that have no output matrix of their own.
inline constexpr const char * kTiedOutput = "token_embd.weight";

// Name of the node of which a tensor is a copy, as what goes from one device to another is:
// BACKEND#NAME#NUMBER. Empty: it is none.
inline std::string copied_name(const ggml_tensor * tensor) {
    const std::string name = tensor->name;
    const size_t begin = name.find('#') + 1, end = name.rfind('#');
    return begin == 0 || end < begin ? "" : name.substr(begin, end - begin);
}

}  // namespace pyquant::calibrate
