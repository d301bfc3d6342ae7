#include "calibrate/streams.h"

#include <cmath>

#include "ggml.h"

namespace pyquant::calibrate {
namespace {

// Gives the stream of which a norm, with weights and bias, made what enters a matrix; null if none did.
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
    const bool readable = normed && x->src[0]->type == GGML_TYPE_F32 && ggml_is_contiguous(x->src[0]);
    return readable ? x->src[0] : nullptr;
}

}  // namespace

bool Streams::evaluate(ggml_tensor * node, bool ask, void * self) noexcept {
    const ggml_tensor * stream = stream_of(node);
    if (ask || !stream) {
        return !ask || stream;
    }
    Size & size = static_cast<Streams *>(self)->sizes_[node->src[0]->name];
    const float * row = static_cast<const float *>(stream->data);
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
    return true;
}

}  // namespace pyquant::calibrate
