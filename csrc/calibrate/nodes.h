// Names that llama.cpp gives to nodes of its graphs.
#pragma once

namespace pyquant::calibrate {

inline constexpr const char * kLastHiddenState = "result_norm";

}  // namespace pyquant::calibrate
