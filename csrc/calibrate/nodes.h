// Names that llama.cpp gives to nodes of its graphs, and to tensors.
#pragma once

namespace pyquant::calibrate {

inline constexpr const char * kLastHiddenState = "result_norm";

// Matrix by which models multiply that have no output matrix of their own.
inline constexpr const char * kTiedOutput = "token_embd.weight";

}  // namespace pyquant::calibrate
