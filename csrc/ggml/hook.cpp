#include "ggml/hook.h"

#include <cstring>

#include "ggml-quants.h"
#include "kernels/block.h"
#include "kernels/block_scale.h"
#include "kernels/scheme.h"

namespace pyquant::in_ggml {

using namespace kernels;

namespace {

bool active = false;
ggml_type active_type;
Scheme active_scheme;

// GGML's own search finds the codes where there is an imatrix, and the scheme then folds them.
size_t quantize(const float * src, void * dst, int64_t n_rows, int64_t n_per_row, const float * imatrix) {
    const int64_t n_blocks = n_rows * n_per_row / kBlock;
    const size_t size = size_t(storage_bytes(active_scheme.storage, n_blocks));
    if (imatrix && active_scheme.grid == Grid::q4_0) {
        quantize_q4_0(src, dst, n_rows, n_per_row, imatrix);
        fold(active_scheme, dst, n_blocks);
        return size;
    }
    const int64_t n_encoded = encode(active_scheme, src, n_blocks, dst);
    if (n_encoded == n_blocks) {
        return size;
    }
    if (active_scheme.storage != Storage::q4_t) {
        return 0;  // GGML encodes a block that has no encoding so that its own validation then refuses it
    }
    BlockQ4_0 * blocks = static_cast<BlockQ4_0 *>(dst);  // and of Q4_T, which it does not encode, this one
    std::memset(blocks + n_encoded, 0, size_t(n_blocks - n_encoded) * sizeof *blocks);
    blocks[n_encoded].d = kHalfInfinity;
    return size;
}

}  // namespace

void set_hook(const Scheme & scheme) {
    switch (scheme.storage) {
        case Storage::q4_0: active_type = GGML_TYPE_Q4_0; break;
        case Storage::q8_0: active_type = GGML_TYPE_Q8_0; break;
        case Storage::q4_t: active_type = GGML_TYPE_Q4_T; break;
    }
    active_scheme = scheme;
    active = true;
}

void clear_hook() {
    active = false;
}

}  // namespace pyquant::in_ggml

size_t pyquant_hook_quantize(ggml_type type, const float * src, void * dst, int64_t n_rows, int64_t n_per_row,
                             const float * imatrix) {
    using namespace pyquant::in_ggml;
    return active && type == active_type ? quantize(src, dst, n_rows, n_per_row, imatrix) : 0;
}
