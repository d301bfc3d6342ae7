// What the patch in GGML calls. Compiled into libggml-base, with the kernels.
#pragma once

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

#ifdef __cplusplus
}

#include "kernels/scheme.h"

namespace pyquant {

// From now on blocks of the type that the scheme's container is of are made by this scheme. Neither
// function is to be called while a quantization runs.
GGML_API void set_hook(const Scheme & scheme);

GGML_API void clear_hook();

}  // namespace pyquant
#endif
