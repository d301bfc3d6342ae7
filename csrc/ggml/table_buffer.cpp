// Buffers that hold Q4_T tensors, and what computes with them.
#include "ggml-backend-impl.h"
#include "ggml-cpu.h"
#include "ggml/operations.h"
#include "ggml/table_ops.h"
#include "kernels/table_product.h"

namespace pyquant::in_ggml {

using namespace kernels;

namespace {

// A matrix or a stack of them, in whole groups of rows.
bool can_interleave(const ggml_tensor * tensor, int n_dims) {
    return tensor->type == GGML_TYPE_Q4_T && ggml_n_dims(tensor) == n_dims && tensor->ne[1] % kGroup == 0 &&
           ggml_is_contiguous(tensor);
}

class Operations : public ggml::cpu::tensor_traits {
    bool work_size(int n_threads, const ggml_tensor * op, size_t & size) override {
        const bool product = op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID;
        size = product ? product_work_size(op, n_threads) : 0;
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        switch (op->op) {
            case GGML_OP_MUL_MAT:
            case GGML_OP_MUL_MAT_ID: multiply_matrices(params, op); return true;
            case GGML_OP_GET_ROWS: get_rows(params, op); return true;
            default: GGML_ABORT("%s of tensor '%s': not with type Q4_T", ggml_op_desc(op), op->src[0]->name);
        }
    }
};

class BufferType : public ggml::cpu::extra_buffer_type {
    bool supports_op(ggml_backend_dev_t, const ggml_tensor * op) override {
        const int n_dims = op->op == GGML_OP_MUL_MAT ? 2 : op->op == GGML_OP_MUL_MAT_ID ? 3 : 0;
        return n_dims && is_interleaved(op->src[0]) && can_interleave(op->src[0], n_dims) &&
               op->src[1]->type == GGML_TYPE_F32 &&
               (!op->src[1]->buffer || ggml_backend_buft_is_host(op->src[1]->buffer->buft));
    }

    // Serves tensors in every buffer: GGML's own operations know no tables.
    ggml::cpu::tensor_traits * get_tensor_traits(const ggml_tensor * op) override {
        switch (op->op) {
            case GGML_OP_NONE:
            case GGML_OP_RESHAPE:
            case GGML_OP_VIEW:
            case GGML_OP_PERMUTE:
            case GGML_OP_TRANSPOSE: return nullptr;
            default: break;
        }
        for (const Provider provide : providers()) {
            if (ggml::cpu::tensor_traits * traits = provide(op)) {
                return traits;
            }
        }
        static Operations operations;
        return op->src[0] && op->src[0]->type == GGML_TYPE_Q4_T ? &operations : nullptr;
    }
};

void set_tensor(ggml_backend_buffer_t, ggml_tensor * tensor, const void * data, size_t offset, size_t size) {
    GGML_ASSERT(offset == 0 && size == ggml_nbytes(tensor));
    const int64_t n_blocks = tensor->ne[0] / kBlock;
    const auto * rows = static_cast<const BlockQ4_0 *>(data);
    auto * groups = static_cast<TableGroup *>(tensor->data);
    for (int64_t group = 0; group < ggml_nrows(tensor) / kGroup; ++group) {
        interleave(rows + group * kGroup * n_blocks, kGroup, n_blocks, groups + group * n_blocks);
    }
}

ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size) {
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size);
    if (buffer) {
        buffer->buft = type;
        buffer->iface.set_tensor = set_tensor;
        buffer->iface.get_tensor = nullptr;
        buffer->iface.cpy_tensor = nullptr;
    }
    return buffer;
}

}  // namespace

bool is_interleaved(const ggml_tensor * tensor) {
    return tensor->buffer && tensor->buffer->buft == pyquant_table_buffer_type();
}

}  // namespace pyquant::in_ggml

ggml_backend_buffer_type_t pyquant_table_buffer_type() {
    static ggml_backend_buffer_type type = [] {
        ggml_backend_buffer_type made{};
        made.iface.get_name = [](ggml_backend_buffer_type_t) { return "CPU_TABLE"; };
        made.iface.alloc_buffer = pyquant::in_ggml::alloc_buffer;
        made.iface.get_alignment = [](ggml_backend_buffer_type_t) { return size_t(64); };
        made.device = ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
        made.context = new pyquant::in_ggml::BufferType();
        return made;
    }();
    return &type;
}
