#include "ggml/table_ops.h"

#include <algorithm>
#include <cstring>

#include "ggml-cpu.h"
#include "ggml/batches.h"
#include "ggml/chunks.h"
#include "ggml/table.h"
#include "kernels/scheme.h"
#include "kernels/table_product.h"

namespace pyquant::in_ggml {

using namespace kernels;

namespace {

// Layout of a product in its workspace, and how it is cut into chunks of groups of rows.
template <class Columns>
struct Layout {
    Layout(const ggml_tensor * op, int n_threads)
        : n_blocks(op->src[0]->ne[0] / kBlock),
          n_rows(op->src[0]->ne[1]),
          n_groups((n_rows + kGroup - 1) / kGroup),
          n_columns(Columns::n_columns(op)),
          n_batches(Columns::n_batches(op)) {
        groups_per_chunk = rows_per_chunk(n_groups, n_blocks * int64_t(sizeof(TableGroup)), n_threads);
        n_chunks = (n_groups + groups_per_chunk - 1) / groups_per_chunk;
        activations = GGML_PAD(Columns::work_size(op), 64);
        groups = activations + GGML_PAD(size_t(n_columns * n_blocks) * sizeof(Activations), 64);
        groups_size =
            is_interleaved(op->src[0]) ? 0 : size_t(groups_per_chunk * n_blocks) * sizeof(TableGroup);
        size = groups + size_t(n_threads) * groups_size;
    }

    int64_t n_blocks, n_rows, n_groups, n_columns, n_batches;
    int64_t groups_per_chunk, n_chunks;
    size_t activations, groups;  // where they are in the workspace
    size_t groups_size;          // of one thread
    size_t size;
};

template <class Columns>
class Product {
public:
    Product(const ggml_compute_params * params, const ggml_tensor * op)
        : params_(params),
          layout_(op, params->nth),
          columns_(op, params->wdata),
          table_(table_of(op->src[0])),
          interleaved_(is_interleaved(op->src[0])),
          activations_(reinterpret_cast<Activations *>(work(layout_.activations))),
          groups_(reinterpret_cast<TableGroup *>(
              work(layout_.groups + size_t(params->ith) * layout_.groups_size))) {
        GGML_ASSERT(op->src[1]->type == GGML_TYPE_F32 && op->src[1]->nb[0] == sizeof(float));
        GGML_ASSERT(op->nb[0] == sizeof(float) && params->wsize >= layout_.size);
    }

    void run() {
        columns_.prepare(params_);
        quantize_activations();
        share_chunks(params_, columns_, layout_.n_batches, layout_.n_chunks,
                     [this](int64_t, const Batch & batch, int64_t chunk) { multiply_chunk(batch, chunk); });
    }

private:
    char * work(size_t offset) const { return static_cast<char *>(params_->wdata) + offset; }

    // Block b of column c of a batch is number b * n_columns + c of the batch's. Threads share all
    // blocks, as one token's activations are a single column.
    void quantize_activations() {
        static const ggml_from_float_t to_q8_0 = ggml_get_type_traits_cpu(GGML_TYPE_Q8_0)->from_float;
        constexpr int64_t at_once = 64;
        BlockQ8_0 quantized[at_once];
        int64_t passed = 0;
        const int64_t total = layout_.n_columns * layout_.n_blocks;
        const int64_t begin = total * params_->ith / params_->nth,
                      end = total * (params_->ith + 1) / params_->nth;
        for (int64_t i = 0; i < layout_.n_batches; ++i) {
            const Batch batch = columns_.batch(i);
            Activations * out = activations_ + passed;
            const int64_t last = std::min(end - passed, batch.n_columns * layout_.n_blocks);
            for (int64_t at = std::max<int64_t>(0, begin - passed), n; at < last; at += n) {
                const int64_t column = at / layout_.n_blocks, block = at % layout_.n_blocks;
                n = std::min({at_once, layout_.n_blocks - block, last - at});
                to_q8_0(columns_.column(batch.first + column).x + block * kBlock, quantized, n * kBlock);
                for (int64_t b = 0; b < n; ++b) {
                    out[(block + b) * batch.n_columns + column] = activations(quantized[b]);
                }
            }
            passed += batch.n_columns * layout_.n_blocks;
        }
    }

    void multiply_chunk(const Batch & batch, int64_t chunk) {
        static const Multiply multiply = fastest_multiply();
        const int64_t n_blocks = layout_.n_blocks;
        const int64_t begin = chunk * layout_.groups_per_chunk;
        const int64_t end = std::min(begin + layout_.groups_per_chunk, layout_.n_groups);
        const TableGroup * groups = reinterpret_cast<const TableGroup *>(batch.matrix) + begin * n_blocks;
        if (!interleaved_) {
            const BlockQ4_0 * rows = reinterpret_cast<const BlockQ4_0 *>(batch.matrix);
            for (int64_t group = begin; group < end; ++group) {
                interleave(rows + group * kGroup * n_blocks, rows_of(group), n_blocks,
                           groups_ + (group - begin) * n_blocks);
            }
            groups = groups_;
        }
        const Activations * x = activations_ + batch.first * n_blocks;
        for (int64_t first = 0; first < batch.n_columns; first += kTile) {
            const int n = int(std::min<int64_t>(kTile, batch.n_columns - first));
            float * y[kTile];
            for (int c = 0; c < n; ++c) {
                y[c] = columns_.column(batch.first + first + c).y;
            }
            float products[kTile * kGroup];
            for (int64_t group = begin; group < end; ++group) {
                multiply(groups + (group - begin) * n_blocks, table_, x + first, batch.n_columns, n_blocks, n,
                         products);
                for (int c = 0; c < n; ++c) {
                    std::memcpy(y[c] + group * kGroup, products + c * kGroup,
                                size_t(rows_of(group)) * sizeof(float));
                }
            }
        }
    }

    int rows_of(int64_t group) const {
        return int(std::min<int64_t>(kGroup, layout_.n_rows - group * kGroup));
    }

    const ggml_compute_params * params_;
    const Layout<Columns> layout_;
    Columns columns_;
    const Table & table_;
    const bool interleaved_;
    Activations * activations_;
    TableGroup * groups_;
};

}  // namespace

size_t product_work_size(const ggml_tensor * op, int n_threads) {
    return op->op == GGML_OP_MUL_MAT ? Layout<Planes>(op, n_threads).size
                                     : Layout<Experts>(op, n_threads).size;
}

void multiply_matrices(ggml_compute_params * params, ggml_tensor * op) {
    op->op == GGML_OP_MUL_MAT ? Product<Planes>(params, op).run() : Product<Experts>(params, op).run();
}

void get_rows(ggml_compute_params * params, ggml_tensor * op) {
    const ggml_tensor *rows = op->src[0], *ids = op->src[1];
    const Table & table = table_of(rows);
    const int64_t n = ggml_nelements(ids);
    GGML_ASSERT(!is_interleaved(rows) && ids->type == GGML_TYPE_I32 && op->nb[0] == sizeof(float));
    for (int64_t i = n * params->ith / params->nth; i < n * (params->ith + 1) / params->nth; ++i) {
        const int64_t i0 = i % ids->ne[0], i1 = i / ids->ne[0] % ids->ne[1], i2 = i / ids->ne[0] / ids->ne[1];
        const char * id = at<char>(ids, i1, i2) + i0 * int64_t(ids->nb[0]);
        const int64_t row = *reinterpret_cast<const int32_t *>(id);
        GGML_ASSERT(row >= 0 && row < rows->ne[1]);
        decode_table(table, at<BlockQ4_0>(rows, row, i1, i2), rows->ne[0] / kBlock,
                     at<float>(op, i0, i1, i2));
    }
}

}  // namespace pyquant::in_ggml
