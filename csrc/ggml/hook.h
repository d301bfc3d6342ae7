// Functions that the patch in GGML calls.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

// Called by ggml_quantize_chunk, from several threads: the bytes written to dst, or 0 where GGML
// shall do it itself.
size_t pyquant_hook_quantize(enum ggml_type type, const float * src, void * dst, int64_t n_rows,
                             int64_t n_per_row, const float * imatrix);

// Called by each thread that computes a graph, where there are several: before its share, and after it.
void pyquant_set_sharing(bool sharing);

#ifdef __cplusplus
}

#include "kernels/scheme.h"

namespace pyquant::in_ggml {

// GGML then quantizes every tensor of the scheme's storage by this scheme. Do not call either function
// while a quantization runs.
void set_hook(const kernels::Scheme & scheme);

void clear_hook();

}  // namespace pyquant::in_ggml
#endif
