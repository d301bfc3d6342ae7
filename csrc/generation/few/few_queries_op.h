// GGML_OP_FLASH_ATTN_EXT of a few tokens.
#pragma once

#include "ggml-cpu-impl.h"

namespace pyquant::in_ggml {

// Whether the attention is one that the kernel computes.
bool has_few_queries(const ggml_tensor * op);

void attend_few_queries(ggml_compute_params * params, ggml_tensor * op);

}  // namespace pyquant::in_ggml
