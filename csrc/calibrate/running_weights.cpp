#include "calibrate/running_weights.h"

#include "ggml.h"

namespace pyquant::calibrate {

bool RunningWeights::evaluate(ggml_tensor * node, bool ask, void * self) noexcept {
    const bool takes_weights =
        node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_MUL_MAT_ID || node->op == GGML_OP_GET_ROWS;
    if (ask && takes_weights && node->src[0]->op == GGML_OP_NONE) {  // a leaf of the graph
        static_cast<RunningWeights *>(self)->tensors_.emplace(node->src[0]->name, node->src[0]);
    }
    return !ask;
}

}  // namespace pyquant::calibrate
