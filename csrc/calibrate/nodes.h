// Names that llama.cpp gives to nodes of its graphs.
#pragma once

namespace pyquant {

inline constexpr const char * kLastHiddenState = "result_norm";

}  // namespace pyquant
