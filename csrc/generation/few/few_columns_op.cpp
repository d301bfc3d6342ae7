#include "generation/few/few_columns_op.h"

#include <algorithm>

#include "generation/few/few_columns.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml/chunks.h"

namespace pyquant::in_ggml {

using namespace kernels;

namespace {

constexpr int64_t kRowsAtOnce = 12;   // a multiple of what each kernel multiplies at once
constexpr int64_t kMostColumns = 32;  // of a pass that verifies a draft, or writes some texts side by side
constexpr int64_t kRowsInOrder = 4;   // GGML sums otherwise where the number of rows is no multiple of it

bool weights_of(ggml_type type, FewWeights & weights) {
    switch (type) {
        case GGML_TYPE_F16: weights = FewWeights::f16; return true;
        case GGML_TYPE_BF16: weights = FewWeights::bf16; return true;
        case GGML_TYPE_Q8_0: weights = FewWeights::q8_0; return true;
        default: return false;
    }
}

FewWeights weights_of(const ggml_tensor * op) {
    FewWeights weights{};
    weights_of(op->src[0]->type, weights);
    return weights;
}

// Converts activations as GGML does, a share of each column.
void prepare_columns(const ggml_compute_params * params, const ggml_tensor * op, FewWeights weights) {
    const ggml_type converted = ggml_get_type_traits_cpu(op->src[0]->type)->vec_dot_type;
    const ggml_from_float_t convert = ggml_get_type_traits_cpu(converted)->from_float;
    constexpr int64_t at_once = 8 * kBlock;
    alignas(64) char buffer[at_once * sizeof(float)];
    const ggml_tensor * x = op->src[1];
    const int64_t n_blocks = x->ne[0] / kBlock;
    const int64_t begin = n_blocks * params->ith / params->nth * kBlock;
    const int64_t end = n_blocks * (params->ith + 1) / params->nth * kBlock;
    for (int64_t c = 0; c < x->ne[1]; ++c) {
        const char * column = static_cast<const char *>(x->data) + size_t(c) * x->nb[1];
        char * to = static_cast<char *>(params->wdata) + size_t(c) * prepared_bytes(weights, x->ne[0]);
        for (int64_t k = begin; k < end; k += at_once) {
            const int64_t n = std::min(at_once, end - k);
            convert(reinterpret_cast<const float *>(column) + k, buffer, n);
            prepare(weights, buffer, k, n, to);
        }
    }
}

}  // namespace

bool has_few_columns(const ggml_tensor * op) {
    const ggml_tensor *w = op->src[0], *x = op->src[1];
    FewWeights weights{};
    return op->op == GGML_OP_MUL_MAT && weights_of(w->type, weights) && few_lanes(weights) > 0 &&
           x->type == GGML_TYPE_F32 && x->ne[1] >= 2 && x->ne[1] <= kMostColumns &&
           w->ne[0] % std::max(kBlock, few_step(weights)) == 0 && w->ne[1] % kRowsInOrder == 0 &&
           w->ne[2] * w->ne[3] * x->ne[2] * x->ne[3] == 1 && w->nb[0] == ggml_type_size(w->type) &&
           x->nb[0] == sizeof(float) && op->nb[0] == sizeof(float) &&
           ggml_get_op_params_i32(op, 1) != GGML_HINT_SRC0_IS_HADAMARD &&
           (!w->buffer || ggml_backend_buffer_is_host(w->buffer));
}

size_t few_columns_work_size(const ggml_tensor * op) {
    return size_t(op->src[1]->ne[1]) * prepared_bytes(weights_of(op), op->src[1]->ne[0]);
}

void multiply_few_columns(ggml_compute_params * params, ggml_tensor * op) {
    const FewWeights weights = weights_of(op);
    const ggml_tensor *w = op->src[0], *x = op->src[1];
    GGML_ASSERT(params->wsize >= few_columns_work_size(op));
    prepare_columns(params, op, weights);
    if (params->ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
    }
    ggml_barrier(params->threadpool);
    const int64_t n_columns = x->ne[1], n_tiles = (n_columns + few_tile(weights) - 1) / few_tile(weights);
    const int64_t shortest = rows_per_chunk(w->ne[1], int64_t(w->nb[1]), params->nth);
    const int64_t at_once = (shortest + kRowsAtOnce - 1) / kRowsAtOnce * kRowsAtOnce;
    const int64_t n_chunks = (w->ne[1] + at_once - 1) / at_once;
    for (int64_t i = params->ith; i < n_chunks; i = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        const int64_t row = i * at_once, n_rows = std::min(at_once, w->ne[1] - row);
        const char * rows = static_cast<const char *>(w->data) + size_t(row) * w->nb[1];
        for (int64_t tile = 0; tile < n_tiles; ++tile) {
            const int64_t begin = n_columns * tile / n_tiles, end = n_columns * (tile + 1) / n_tiles;
            const char * columns =
                static_cast<const char *>(params->wdata) + size_t(begin) * prepared_bytes(weights, w->ne[0]);
            char * y = static_cast<char *>(op->data) + size_t(begin) * op->nb[1];
            multiply_few(weights, rows, w->nb[1], n_rows, w->ne[0], columns, int(end - begin),
                         reinterpret_cast<float *>(y) + row, int64_t(op->nb[1] / sizeof(float)));
        }
    }
}

}  // namespace pyquant::in_ggml
