// GGML_OP_MUL_MAT with few columns of activations.
#pragma once

#include "ggml-cpu-impl.h"

namespace pyquant::in_ggml {

// Whether the product is one that the kernel computes as GGML does, to the bit.
bool has_few_columns(const ggml_tensor * op);

// Bytes of workspace that the product needs.
size_t few_columns_work_size(const ggml_tensor * op);

void multiply_few_columns(ggml_compute_params * params, ggml_tensor * op);

}  // namespace pyquant::in_ggml
