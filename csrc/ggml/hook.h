// What the patch in GGML calls. Compiled into libggml-base, with the kernels.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

// From now on blocks of `type` (GGML_TYPE_Q4_0 or GGML_TYPE_Q8_0) are made by this scheme; grid is
// a pyquant::Grid. Not to be called while a quantization runs.
GGML_API void pyquant_hook_set(enum ggml_type type, int grid, const int8_t value[256]);

GGML_API void pyquant_hook_clear(void);

// Called by ggml_quantize_chunk, from several threads: the bytes written to dst, or 0 where GGML
// shall do it itself.
size_t pyquant_hook_quantize(enum ggml_type type, const float * src, void * dst, int64_t n_rows,
                             int64_t n_per_row, const float * imatrix);

#ifdef __cplusplus
}
#endif
