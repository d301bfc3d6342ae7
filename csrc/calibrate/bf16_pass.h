// Allows BF16 to the products of each pass (ggml/bf16_products.h).
#pragma once

#include "ggml/bf16_products.h"

namespace pyquant::calibrate {

struct Bf16Pass {
    // A ggml_backend_sched_eval_callback. It stops the graph nowhere.
    static bool evaluate(ggml_tensor * node, bool, void *) noexcept {
        in_ggml::allow_bf16(node);
        return false;
    }
};

}  // namespace pyquant::calibrate
