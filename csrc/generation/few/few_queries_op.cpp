#include "generation/few/few_queries_op.h"

#include <algorithm>

#include "generation/few/few_queries.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml-impl.h"
#include "ggml/element.h"
#include "kernels/half.h"

namespace pyquant::in_ggml {

using namespace kernels;

namespace {

constexpr int64_t kMostTokens = 32;
constexpr int64_t kLargestHead = 256;

// The queries of all tokens and heads that look at one head of keys and values.
class Group {
public:
    Group(const ggml_tensor * op, int64_t head, int64_t sequence)
        : op_(op),
          q_(op->src[0]),
          k_(op->src[1]),
          v_(op->src[2]),
          head_(head),
          sequence_(sequence) {}

    static int64_t n_queries(const ggml_tensor * op) {
        return op->src[0]->ne[1] * op->src[0]->ne[2] / op->src[1]->ne[2];
    }

    Cells cells() const {
        const int64_t sequence = sequence_ / (q_->ne[3] / k_->ne[3]);
        return {at<char>(k_, 0, head_, sequence), k_->nb[1], at<char>(v_, 0, head_, sequence), v_->nb[1],
                k_->ne[1]};
    }

    // Rounds the query to F16, as GGML does.
    Query query(int64_t i, float * x) const {
        const int64_t n_tokens = q_->ne[1], token = i % n_tokens;
        const int64_t head = head_ * (q_->ne[2] / k_->ne[2]) + i / n_tokens;
        const auto * from = at<float>(q_, token, head, sequence_);
        for (int64_t j = 0; j < q_->ne[0]; ++j) {
            x[j] = half_to_float(float_to_half(from[j]));
        }
        const ggml_tensor * mask = op_->src[3];
        return {x, mask ? at<uint16_t>(mask, token, head % mask->ne[2], sequence_ % mask->ne[3]) : nullptr,
                at<float>(op_, head, token, sequence_)};
    }

private:
    const ggml_tensor *op_, *q_, *k_, *v_;
    int64_t head_, sequence_;
};

}  // namespace

bool has_few_queries(const ggml_tensor * op) {
    if (op->op != GGML_OP_FLASH_ATTN_EXT || op->src[4]) {
        return false;
    }
    const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3];
    return q->ne[1] >= 2 && q->ne[1] <= kMostTokens && few_queries(q->ne[0]) > 0 && v->ne[0] == q->ne[0] &&
           q->type == GGML_TYPE_F32 && k->type == GGML_TYPE_F16 && v->type == GGML_TYPE_F16 &&
           k->ne[1] % kCellsAtOnce == 0 && q->ne[2] % k->ne[2] == 0 && q->ne[3] % k->ne[3] == 0 &&
           v->ne[2] == k->ne[2] && v->ne[3] == k->ne[3] && q->nb[0] == sizeof(float) &&
           k->nb[0] == sizeof(uint16_t) && v->nb[0] == sizeof(uint16_t) &&
           (!mask || (mask->type == GGML_TYPE_F16 && mask->nb[0] == sizeof(uint16_t))) &&
           ggml_get_op_params_f32(op, 1) == 0 &&
           ggml_get_op_params_f32(op, 2) == 0;  // neither slopes nor capped scores
}

void attend_few_queries(ggml_compute_params * params, ggml_tensor * op) {
    const ggml_tensor *q = op->src[0], *k = op->src[1];
    const int64_t at_once = few_queries(q->ne[0]), n_queries = Group::n_queries(op);
    const int64_t n_parts = (n_queries + at_once - 1) / at_once;
    float x[kMostQueries * kLargestHead];
    for (int64_t i = params->ith; i < n_parts * k->ne[2] * q->ne[3]; i += params->nth) {
        const Group group(op, i / n_parts % k->ne[2], i / n_parts / k->ne[2]);
        const int64_t first = i % n_parts * at_once, n = std::min(at_once, n_queries - first);
        Query queries[kMostQueries];
        for (int64_t j = 0; j < n; ++j) {
            queries[j] = group.query(first + j, x + j * q->ne[0]);
        }
        attend_few(group.cells(), q->ne[0], queries, int(n), ggml_get_op_params_f32(op, 0));
    }
}

}  // namespace pyquant::in_ggml
