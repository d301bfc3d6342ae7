#include "ggml/hook.h"

#include "ggml-quants.h"
#include "kernels/block.h"
#include "kernels/scheme.h"

namespace {

bool active = false;
ggml_type active_type;
pyquant::Scheme active_scheme;

}  // namespace

namespace pyquant {

void set_hook(const Scheme & scheme) {
    switch (scheme.container) {
        case Container::q4_0: active_type = GGML_TYPE_Q4_0; break;
        case Container::q8_0: active_type = GGML_TYPE_Q8_0; break;
        case Container::q4_t: active_type = GGML_TYPE_Q4_T; break;
    }
    active_scheme = scheme;
    active = true;
}

void clear_hook() {
    active = false;
}

}  // namespace pyquant

size_t pyquant_hook_quantize(ggml_type type, const float * src, void * dst, int64_t n_rows,
                             int64_t n_per_row, const float * imatrix) {
    if (!active || type != active_type) {
        return 0;
    }
    const int64_t n_blocks = n_rows * n_per_row / pyquant::kBlock;
    const size_t size = size_t(pyquant::container_bytes(active_scheme.container, n_blocks));
    if (imatrix && active_scheme.grid == pyquant::Grid::q4_0) {  // GGML's weighted search, then the fold
        quantize_q4_0(src, dst, n_rows, n_per_row, imatrix);
        pyquant::fold(active_scheme, dst, n_blocks);
        return size;
    }
    // Where a block has no encoding, GGML makes one that its own validation then refuses.
    return pyquant::encode(active_scheme, src, n_blocks, dst) == n_blocks ? size : 0;
}
