// Finds elements of GGML's tensors.
#pragma once

#include "ggml.h"

namespace pyquant::in_ggml {

template <class T>
T * at(const ggml_tensor * tensor, int64_t i1, int64_t i2, int64_t i3 = 0) {
    return reinterpret_cast<T *>(static_cast<char *>(tensor->data) + i1 * int64_t(tensor->nb[1]) +
                                 i2 * int64_t(tensor->nb[2]) + i3 * int64_t(tensor->nb[3]));
}

}  // namespace pyquant::in_ggml
