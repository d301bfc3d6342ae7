// Operations on Q4_T tensors, and the buffers that hold them interleaved.
#pragma once

#include "ggml-backend.h"
#include "ggml-cpu-impl.h"

// Buffer type that the patch adds to those of the CPU. Weights that only matrix products read are put
// there, when a model is loaded; operations on Q4_T tensors in any other buffer are done here too.
ggml_backend_buffer_type_t pyquant_table_buffer_type();

namespace pyquant::in_ggml {

bool is_interleaved(const ggml_tensor * tensor);

// Bytes of workspace that a product needs.
size_t product_work_size(const ggml_tensor * op, int n_threads);

// GGML_OP_MUL_MAT and GGML_OP_MUL_MAT_ID with weights of type Q4_T.
void multiply_matrices(ggml_compute_params * params, ggml_tensor * op);

// GGML_OP_GET_ROWS.
void get_rows(ggml_compute_params * params, ggml_tensor * op);

}  // namespace pyquant::in_ggml
