// Lets GGML's CPU backend multiply few columns, and attend with few queries, by the kernels of this folder.
#include "ggml/operations.h"

#include "generation/few/few_columns_op.h"
#include "generation/few/few_queries_op.h"

namespace pyquant::in_ggml {
namespace {

class FewColumns : public ggml::cpu::tensor_traits {
    bool work_size(int, const ggml_tensor * op, size_t & size) override {
        size = few_columns_work_size(op);
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        if (params->use_ref) {
            return false;
        }
        multiply_few_columns(params, op);
        return true;
    }
};

class FewQueries : public ggml::cpu::tensor_traits {
    bool work_size(int, const ggml_tensor *, size_t &) override { return false; }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        if (params->use_ref) {
            return false;
        }
        attend_few_queries(params, op);
        return true;
    }
};

ggml::cpu::tensor_traits * provide(const ggml_tensor * op) {
    static FewColumns few_columns;
    static FewQueries few_queries;
    switch (op->op) {
        case GGML_OP_FLASH_ATTN_EXT: return has_few_queries(op) ? &few_queries : nullptr;
        case GGML_OP_MUL_MAT: return has_few_columns(op) ? &few_columns : nullptr;
        default: return nullptr;
    }
}

[[maybe_unused]] const bool added = (providers().push_back(provide), true);

}  // namespace
}  // namespace pyquant::in_ggml
