// Products of F16 and BF16 weights with many tokens where both may be rounded to BF16, which AVX-512
// multiplies at twice the speed of float32, and Intel's matrix registers (AMX) several times as fast.
//
// Calibration allows it. What measures a model does not: its figures are those of llama.cpp.
#pragma once

#include "ggml.h"

namespace pyquant::in_ggml {

// A mark in the last of a node's parameters: GGML's own are the first.
inline constexpr size_t kMarkAt = GGML_MAX_OP_PARAMS / sizeof(int32_t) - 1;
inline constexpr int32_t kMayBeBf16 = 0xbf16;

inline bool is_product(const ggml_tensor * node) {
    return node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_MUL_MAT_ID;
}

// Lets the CPU round both factors of a node, if it is a product.
inline void allow_bf16(ggml_tensor * node) {
    if (is_product(node)) {
        node->op_params[kMarkAt] = kMayBeBf16;
    }
}

}  // namespace pyquant::in_ggml

// The same, seen from outside, beside GGML's own functions.
extern "C" {
[[gnu::visibility("default")]] void pyquant_allow_bf16(ggml_tensor * node);
}
