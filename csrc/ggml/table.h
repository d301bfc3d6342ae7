// Tables of Q4_T tensors: out of a file's metadata, and on the tensor, where operations find them.
#pragma once

#include "ggml.h"
#include "gguf.h"
#include "kernels/block.h"

// Gives a tensor of type Q4_T the 16 values of its codes. Seen from outside, beside GGML's own functions.
extern "C" {
[[gnu::visibility("default")]] void pyquant_set_table(ggml_tensor * tensor, const int8_t * values);
}

namespace pyquant::in_ggml {

// Entry of a file for a tensor's codes: their values, and the stock type that they equal bit for bit.
struct StoredTable {
    kernels::Table values;
    ggml_type stock;
};

// Throws std::runtime_error, which names the tensor, where the metadata has no table for it, or one
// that does not fit, or is of a later version.
StoredTable read_table(const gguf_context * metadata, const char * tensor);

// The table of a tensor or of a view of one. Ends the process where it was given none.
const kernels::Table & table_of(const ggml_tensor * tensor);

}  // namespace pyquant::in_ggml

namespace pyquant {

// Called by the patch in llama.cpp's model loader: gives a tensor its table, if it is of the type that
// has one. Throws as read_table does.
void bind_table(ggml_tensor * tensor, const gguf_context * metadata);

}  // namespace pyquant
