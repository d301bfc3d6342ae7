// Products of weights that GGML has repacked with activations that its kernels do not take: a fourth
// dimension ends the process, and of rows that lie apart in memory the wrong ones are read in silence.
#include <cstring>

#include "ggml-backend-impl.h"
#include "ggml-cpu-impl.h"
#include "ggml/operations.h"

namespace pyquant::in_ggml {
namespace {

constexpr int64_t kRowsAtOnce = 4;  // GGML takes so many as if they followed each other

size_t row_bytes(const ggml_tensor * x) {
    return size_t(x->ne[0]) * sizeof(float);
}

// Bytes of a copy of the activations, without the fourth dimension.
size_t copy_bytes(const ggml_tensor * x) {
    return GGML_PAD(row_bytes(x) * size_t(x->ne[1] * x->ne[2]), 64);
}

bool is_repacked(const ggml_tensor * weights) {
    return weights->buffer && std::strcmp(ggml_backend_buft_name(weights->buffer->buft), "CPU_REPACK") == 0;
}

ggml::cpu::tensor_traits * kernels_of(const ggml_tensor * op) {
    return static_cast<ggml::cpu::tensor_traits *>(op->src[0]->extra);
}

// Copies this thread's share of the rows of one index of the fourth dimension.
void copy_rows(const ggml_compute_params * params, const ggml_tensor * x, int64_t i3, char * to) {
    const int64_t n_rows = x->ne[1] * x->ne[2];
    for (int64_t row = params->ith; row < n_rows; row += params->nth) {
        const size_t at =
            size_t(row % x->ne[1]) * x->nb[1] + size_t(row / x->ne[1]) * x->nb[2] + size_t(i3) * x->nb[3];
        std::memcpy(to + size_t(row) * row_bytes(x), static_cast<const char *>(x->data) + at, row_bytes(x));
    }
}

class RepackedProducts : public ggml::cpu::tensor_traits {
    bool work_size(int n_threads, const ggml_tensor * op, size_t & size) override {
        const bool known = kernels_of(op)->work_size(n_threads, op, size);
        size += copy_bytes(op->src[1]);
        return known;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        const ggml_tensor * x = op->src[1];
        ggml_tensor rows = *x, product = *op;
        rows.data = params->wdata;
        rows.ne[3] = product.ne[3] = 1;
        for (int dimension = 1; dimension < GGML_MAX_DIMS; ++dimension) {
            rows.nb[dimension] = rows.nb[dimension - 1] * size_t(rows.ne[dimension - 1]);
        }
        product.src[1] = &rows;
        ggml_compute_params rest = *params;
        rest.wdata = static_cast<char *>(params->wdata) + copy_bytes(x);
        rest.wsize -= copy_bytes(x);
        for (int64_t i3 = 0; i3 < x->ne[3]; ++i3) {
            copy_rows(params, x, i3, static_cast<char *>(params->wdata));
            product.data = static_cast<char *>(op->data) + size_t(i3) * op->nb[3];
            ggml_barrier(params->threadpool);
            kernels_of(op)->compute_forward(&rest, &product);
            ggml_barrier(params->threadpool);  // the next rows take the place of these
        }
        return true;
    }
};

ggml::cpu::tensor_traits * provide(const ggml_tensor * op) {
    static RepackedProducts products;
    if (op->op != GGML_OP_MUL_MAT || op->src[1]->type != GGML_TYPE_F32) {
        return nullptr;
    }
    const ggml_tensor * x = op->src[1];
    const bool apart = x->ne[1] >= kRowsAtOnce && x->nb[1] != row_bytes(x);
    return (apart || x->ne[3] > 1) && is_repacked(op->src[0]) && kernels_of(op) ? &products : nullptr;
}

[[maybe_unused]] const bool added = (providers().push_back(provide), true);

}  // namespace
}  // namespace pyquant::in_ggml
