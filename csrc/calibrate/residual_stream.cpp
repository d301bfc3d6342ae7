#include "calibrate/residual_stream.h"

#include <cmath>

#include "calibrate/nodes.h"
#include "ggml.h"

namespace pyquant::calibrate {
namespace {

// Gives the residual stream of which a norm, with weights and bias, made what enters a matrix; null if none
// did.
const ggml_tensor * stream_of(const ggml_tensor * node) {
    if (node->op != GGML_OP_MUL_MAT || !node->src[0] || !node->src[1]) {
        return nullptr;
    }
    const ggml_tensor * x = node->src[1];
    for (const ggml_op op : {GGML_OP_ADD, GGML_OP_MUL}) {
        if (x->op == op && x->src[1]->op == GGML_OP_NONE) {
            x = x->src[0];
        }
    }
    const bool normed = x->op == GGML_OP_RMS_NORM || x->op == GGML_OP_NORM;
    return normed ? x->src[0] : nullptr;
}

// Whether a node may be a stream: sums of what layers give, and embeddings, some tokens of either, scaled or
// normed.
bool may_be_stream(const ggml_tensor * node) {
    switch (node->op) {
        case GGML_OP_ADD:
        case GGML_OP_GET_ROWS:
        case GGML_OP_SCALE:
        case GGML_OP_MUL:
        case GGML_OP_RMS_NORM:
        case GGML_OP_NORM:
            return node->type == GGML_TYPE_F32 && ggml_is_contiguous(node) && ggml_is_matrix(node);
        default: return false;
    }
}

ResidualStream::Size size_of(const ggml_tensor * stream, const char * values) {
    ResidualStream::Size size;
    const float * row = reinterpret_cast<const float *>(values);
    for (int64_t token = 0; token < ggml_nrows(stream); ++token, row += stream->ne[0]) {
        double square = 0;
        for (int64_t i = 0; i < stream->ne[0]; ++i) {
            square += double(row[i]) * row[i];
        }
        if (std::isfinite(square) && square > 0) {
            size.log_sum += std::log(square);
            ++size.n_tokens;
        }
    }
    return size;
}

}  // namespace

const ResidualStream::Size * ResidualStream::measured(const ggml_tensor * stream) const {
    if (const auto found = measured_.find(stream); found != measured_.end()) {
        return &found->second;
    }
    const auto found = stream ? by_name_.find(copied_name(stream)) : by_name_.end();
    return found == by_name_.end() ? nullptr : &found->second;
}

bool ResidualStream::evaluate(ggml_tensor * node, bool ask, void * self) noexcept {
    ResidualStream & streams = *static_cast<ResidualStream *>(self);
    if (!ask) {
        streams.measured_[node] = streams.by_name_[node->name] = size_of(node, streams.values_.of(node));
        return true;
    }
    // Here it is too late to read the residual stream: where nothing else needs it, GGML has a norm write
    // over it.
    if (const Size * found = streams.measured(stream_of(node))) {
        Size & size = streams.sizes_[node->src[0]->name];
        size.log_sum += found->log_sum;
        size.n_tokens += found->n_tokens;
    }
    return may_be_stream(node);
}

}  // namespace pyquant::calibrate
