// A tensor's values where the CPU can read them: its own, or a copy of those that a device holds.
#pragma once

#include <vector>

#include "ggml-backend.h"
#include "ggml.h"

namespace pyquant::calibrate {

inline bool is_on_host(const ggml_tensor * tensor) {
    const ggml_backend_buffer_t buffer = tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
    return !buffer || ggml_backend_buffer_is_host(buffer);
}

class HostValues {
public:
    // Valid until the next call; always_copy: also of what the CPU itself computes again. Elements are apart
    // as in the tensor.
    const char * of(const ggml_tensor * tensor, bool always_copy = false) {
        if (is_on_host(tensor) && !always_copy) {
            return static_cast<const char *>(tensor->data);
        }
        copy_.resize(ggml_nbytes(tensor));
        ggml_backend_tensor_get(tensor, copy_.data(), 0, copy_.size());
        return copy_.data();
    }

private:
    std::vector<char> copy_;
};

}  // namespace pyquant::calibrate
