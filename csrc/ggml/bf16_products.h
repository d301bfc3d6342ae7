// Products of F16 and BF16 weights with many tokens where both may be rounded to BF16: by Intel's matrix
// registers, which multiply these several times as fast as GGML multiplies in float32.
//
// Calibration allows it. What measures a model does not: its figures are those of llama.cpp.
#pragma once

struct ggml_tensor;

// Lets the CPU round both factors of a node, if it is a product. Others are left as they are. Seen from outside,
// beside GGML's own functions.
extern "C" {
[[gnu::visibility("default")]] void pyquant_allow_bf16(ggml_tensor * node);
}
