// Lists which rows of activations are multiplied with which matrix, in GGML's two products.
#pragma once

#include <algorithm>

#include "ggml-cpu-impl.h"
#include "ggml/element.h"

namespace pyquant::in_ggml {

// A row of activations, and where its products go.
struct Column {
    const float * x;
    float * y;
};

// Columns first .. first + n_columns - 1 have their products with one matrix.
struct Batch {
    const char * matrix;
    int64_t first;
    int64_t n_columns;
};

// GGML_OP_MUL_MAT: a batch for each plane of activations.
class Planes {
public:
    Planes(const ggml_tensor * op, void *) : op_(op), x_(op->src[1]), matrices_(op->src[0]) {}

    static size_t work_size(const ggml_tensor *) { return 0; }
    static int64_t n_columns(const ggml_tensor * op) { return ggml_nrows(op->src[1]); }
    static int64_t n_batches(const ggml_tensor * op) { return op->src[1]->ne[2] * op->src[1]->ne[3]; }

    void prepare(const ggml_compute_params *) {}

    Batch batch(int64_t plane) const {
        const int64_t i2 = plane % x_->ne[2], i3 = plane / x_->ne[2];
        const char * matrix =
            at<char>(matrices_, 0, i2 / (x_->ne[2] / matrices_->ne[2]), i3 / (x_->ne[3] / matrices_->ne[3]));
        return {matrix, plane * x_->ne[1], x_->ne[1]};
    }

    Column column(int64_t i) const {
        const int64_t i1 = i % x_->ne[1], i2 = i / x_->ne[1] % x_->ne[2], i3 = i / x_->ne[1] / x_->ne[2];
        return {at<float>(x_, i1, i2, i3), at<float>(op_, i1, i2, i3)};
    }

private:
    const ggml_tensor *op_, *x_, *matrices_;
};

// GGML_OP_MUL_MAT_ID: a batch for each expert, of the tokens that have chosen it.
class Experts {
public:
    Experts(const ggml_tensor * op, void * work)
        : op_(op),
          n_experts_(n_batches(op)),
          begin_(static_cast<int64_t *>(work)),
          choices_(reinterpret_cast<Choice *>(begin_ + n_experts_ + 1)) {}

    static size_t work_size(const ggml_tensor * op) {
        return size_t(n_batches(op) + 1) * sizeof(int64_t) + size_t(n_columns(op)) * sizeof(Choice);
    }
    static int64_t n_columns(const ggml_tensor * op) { return op->src[2]->ne[0] * op->src[2]->ne[1]; }
    static int64_t n_batches(const ggml_tensor * op) { return op->src[0]->ne[2]; }

    // Sorts the choices by expert.
    void prepare(const ggml_compute_params * params) {
        if (params->ith == 0) {
            std::fill_n(begin_, n_experts_ + 1, 0);
            each_choice([&](Choice, int32_t expert) { ++begin_[expert + 1]; });
            for (int64_t expert = 0; expert < n_experts_; ++expert) {
                begin_[expert + 1] += begin_[expert];
            }
            each_choice([&](Choice choice, int32_t expert) { choices_[begin_[expert]++] = choice; });
            std::copy_backward(begin_, begin_ + n_experts_, begin_ + n_experts_ + 1);
            begin_[0] = 0;
        }
        ggml_barrier(params->threadpool);
    }

    Batch batch(int64_t expert) const {
        return {at<char>(op_->src[0], 0, expert), begin_[expert], begin_[expert + 1] - begin_[expert]};
    }

    Column column(int64_t i) const {
        const Choice choice = choices_[i];
        const ggml_tensor * x = op_->src[1];  // one row for all choices of a token, or one for each
        return {at<float>(x, choice.slot % x->ne[1], choice.token),
                at<float>(op_, choice.slot, choice.token)};
    }

private:
    struct Choice {
        int32_t slot, token;
    };

    template <class Visit>
    void each_choice(const Visit & visit) const {
        const ggml_tensor * ids = op_->src[2];
        for (int32_t token = 0; token < ids->ne[1]; ++token) {
            for (int32_t slot = 0; slot < ids->ne[0]; ++slot) {
                const auto * row = at<char>(ids, token, 0);
                const int32_t expert = *reinterpret_cast<const int32_t *>(row + size_t(slot) * ids->nb[0]);
                GGML_ASSERT(expert >= 0 && expert < n_experts_);
                visit(Choice{slot, token}, expert);
            }
        }
    }

    const ggml_tensor * op_;
    int64_t n_experts_;
    int64_t * begin_;
    Choice * choices_;
};

// Waits for all threads, then calls work(number of the batch, batch, chunk) for the chunks of all batches
// that have columns: a thread takes the next chunk when it is free.
template <class Columns, class Work>
void share_chunks(const ggml_compute_params * params, const Columns & columns, int64_t n_batches,
                  int64_t n_chunks, const Work & work) {
    if (params->ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
    }
    ggml_barrier(params->threadpool);
    const int64_t n = n_batches * n_chunks;
    for (int64_t i = params->ith; i < n; i = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        const Batch batch = columns.batch(i / n_chunks);
        if (batch.n_columns > 0) {
            work(i / n_chunks, batch, i % n_chunks);
        }
    }
}

}  // namespace pyquant::in_ggml
