#include "ggml/bf16_products.h"

#include "kernels/bf16_tile.h"

#if defined(__x86_64__) && __has_include(<avx512bf16intrin.h>)
#include <algorithm>

#include "ggml/batches.h"
#include "ggml/operations.h"

namespace pyquant::in_ggml {
namespace {

using namespace kernels;

constexpr int64_t kFewest = 16;     // tokens of a matrix for which rounding its weights is worth it
constexpr int64_t kMostStrips = 4;  // of a chunk: tokens are read once for each of a chunk's

// Layout of a product in its workspace, and how it is cut into chunks of strips of rows.
template <class Columns>
struct Layout {
    Layout(const ggml_tensor * op, const TileKernel & kernel, int n_threads)
        : n_rows(op->src[0]->ne[1]),
          n_pairs(op->src[0]->ne[0] / 2),
          n_tokens(Columns::n_columns(op)) {
        const int64_t n_strips = (n_rows + kStrip - 1) / kStrip, each = 4 * n_threads;
        rows_per_chunk = kStrip * std::clamp<int64_t>(n_strips / each, 1, kMostStrips);
        n_chunks = (n_rows + rows_per_chunk - 1) / rows_per_chunk;
        products = GGML_PAD(Columns::work_size(op), sizeof(Line));
        tokens = products + GGML_PAD(size_t(n_tokens) * sizeof(float *), sizeof(Line));
        const int64_t n_together = n_tokens / kernel.rows_together + Columns::n_batches(op) + 1;
        strips = tokens + size_t(n_together * kernel.rows_together * n_pairs) * sizeof(uint32_t);
        strip_size = size_t(kernel.n_together * kStrip) * sizeof(uint32_t);
        size = strips + size_t(n_threads) * strip_size + sizeof(Line);
    }

    int64_t n_rows, n_pairs, n_tokens;
    int64_t rows_per_chunk, n_chunks;
    size_t products, tokens, strips;  // where they are in the workspace
    size_t strip_size;                // of one thread
    size_t size;
};

template <class Columns>
class Product {
public:
    Product(const ggml_compute_params * params, const ggml_tensor * op)
        : params_(params),
          op_(op),
          kernel_(*tile_kernel()),
          pairing_(kernel_.pairing[op->src[0]->type == GGML_TYPE_BF16 ? kBf16 : kFloat16]),
          layout_(op, kernel_, params->nth),
          columns_(op, work<void>(0)),
          products_(work<float *>(layout_.products)),
          tokens_(work<uint32_t>(layout_.tokens)),
          strip_(work<uint32_t>(layout_.strips + size_t(params->ith) * layout_.strip_size)) {
        GGML_ASSERT(params->wsize >= layout_.size);
    }

    void run() {
        columns_.prepare(params_);
        round_tokens();
        kernel_.begin();
        share_chunks(params_, columns_, Columns::n_batches(op_), layout_.n_chunks,
                     [this](int64_t i, const Batch & batch, int64_t chunk) {
                         multiply_chunk(i, batch, chunk * layout_.rows_per_chunk);
                     });
        kernel_.end();
    }

private:
    template <class T>
    T * work(size_t offset) const {
        const uintptr_t begin = GGML_PAD(reinterpret_cast<uintptr_t>(params_->wdata), sizeof(Line));
        return reinterpret_cast<T *>(begin + offset);
    }

    // Finds rows of the i-th batch's tokens that lie together, from a pair on. Each batch begins with some.
    uint32_t * rows_of(int64_t i, const Batch & batch, int64_t token, int64_t pair) const {
        const int64_t together = kernel_.rows_together, before = batch.first / together + i;
        return tokens_ + ((before + token / together) * layout_.n_pairs + pair) * together;
    }

    void round_tokens() {
        int64_t group = 0;
        for (int64_t i = 0; i < Columns::n_batches(op_); ++i) {
            const Batch batch = columns_.batch(i);
            for (int64_t token = 0; token < batch.n_columns; token += kLinePairs, ++group) {
                if (group % params_->nth == params_->ith) {
                    round_group(i, batch, token, int(std::min<int64_t>(kLinePairs, batch.n_columns - token)));
                }
            }
        }
    }

    void round_group(int64_t i, const Batch & batch, int64_t token, int n) {
        const float * rows[kLinePairs];
        for (int row = 0; row < n; ++row) {
            const Column column = columns_.column(batch.first + token + row);
            rows[row] = column.x;
            products_[batch.first + token + row] = column.y;
        }
        kernel_.round_rows(rows, n, layout_.n_pairs, token % kernel_.rows_together,
                           rows_of(i, batch, token, 0));
    }

    void multiply_chunk(int64_t i, const Batch & batch, int64_t begin) {
        const int64_t end = std::min(begin + layout_.rows_per_chunk, layout_.n_rows);
        for (int64_t pair = 0; pair < layout_.n_pairs; pair += kernel_.n_together) {
            const int64_t n_pairs = std::min(kernel_.n_together, layout_.n_pairs - pair);
            for (int64_t row = begin; row < end; row += kStrip) {
                const int64_t n_rows = std::min<int64_t>(kStrip, end - row);
                const size_t row_bytes = op_->src[0]->nb[1];
                const char * weights =
                    batch.matrix + size_t(row) * row_bytes + size_t(pair) * sizeof(uint32_t);
                pairing_.rows(weights, row_bytes, n_rows, 2 * n_pairs, strip_);
                multiply_strip(i, batch, pair, n_pairs, row, n_rows);
            }
        }
    }

    void multiply_strip(int64_t i, const Batch & batch, int64_t pair, int64_t n_pairs, int64_t row,
                        int64_t n_rows) {
        alignas(Line) Tile tile;
        for (int64_t first = 0; first < batch.n_columns; first += kernel_.n_rows) {
            const int64_t n = std::min<int64_t>(kernel_.n_rows, batch.n_columns - first);
            for (int64_t token = 0; token < n; ++token) {
                for (int64_t j = 0; j < kStrip; j += 16) {
                    __builtin_prefetch(products_[batch.first + first + token] + row + j, 1);
                }
            }
            const uint32_t * rows = rows_of(i, batch, first, pair) + first % kernel_.rows_together;
            kernel_.multiply(rows, strip_, n_pairs, tile);
            for (int64_t token = 0; token < n; ++token) {
                float * y = products_[batch.first + first + token] + row;
                if (pair == 0) {
                    std::copy_n(tile[token], n_rows, y);
                } else {
                    for (int64_t j = 0; j < n_rows; ++j) {
                        y[j] += tile[token][j];
                    }
                }
            }
        }
    }

    const ggml_compute_params * params_;
    const ggml_tensor * op_;
    const TileKernel & kernel_;
    const Pairing & pairing_;  // of weights
    const Layout<Columns> layout_;
    Columns columns_;
    float ** products_;  // of each token
    uint32_t * tokens_;  // as TileKernel's rows
    uint32_t * strip_;
};

class Bf16Products : public ggml::cpu::tensor_traits {
    bool work_size(int n_threads, const ggml_tensor * op, size_t & size) override {
        const TileKernel & kernel = *tile_kernel();
        size = op->op == GGML_OP_MUL_MAT ? Layout<Planes>(op, kernel, n_threads).size
                                         : Layout<Experts>(op, kernel, n_threads).size;
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        op->op == GGML_OP_MUL_MAT ? Product<Planes>(params, op).run() : Product<Experts>(params, op).run();
        return true;
    }
};

bool may_be_bf16(const ggml_tensor * op) {
    return is_product(op) && op->op_params[kMarkAt] == kMayBeBf16 && op->op_params[0] == GGML_PREC_DEFAULT;
}

ggml::cpu::tensor_traits * provide(const ggml_tensor * op) {
    static Bf16Products products;
    if (!may_be_bf16(op) || tile_kernel() == nullptr) {
        return nullptr;
    }
    const ggml_tensor *weights = op->src[0], *x = op->src[1];
    const int64_t n_matrices = weights->ne[2] * weights->ne[3];
    const bool known = (weights->type == GGML_TYPE_F16 || weights->type == GGML_TYPE_BF16) &&
                       weights->op == GGML_OP_NONE && weights->nb[0] == sizeof(uint16_t) &&
                       weights->ne[0] % (2 * kLinePairs) == 0;
    const bool many = ggml_nelements(op) >= kFewest * n_matrices * op->ne[0];
    return known && many && x->type == GGML_TYPE_F32 && x->nb[0] == sizeof(float) ? &products : nullptr;
}

// Asked first: others take all nodes of their kind, this one those that are marked.
[[maybe_unused]] const bool added = (providers().insert(providers().begin(), provide), true);

}  // namespace
}  // namespace pyquant::in_ggml
#endif

void pyquant_allow_bf16(ggml_tensor * node) {
    pyquant::in_ggml::allow_bf16(node);
}
