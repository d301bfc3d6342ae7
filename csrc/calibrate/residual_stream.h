// Sizes of the residual stream where a model's norms divide it: an error that enters it counts relative to
// it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "calibrate/host_values.h"

namespace pyquant::calibrate {

class ResidualStream {
public:
    // Sum over tokens of the logarithms of a stream's squared length: a mean of squares would be that of
    // the few tokens that are a thousand times as long as all others.
    struct Size {
        double log_sum = 0;
        int64_t n_tokens = 0;
    };

    // A ggml_backend_sched_eval_callback; self: a ResidualStream.
    static bool evaluate(ggml_tensor * node, bool ask, void * self) noexcept;

    // Sizes of the residual stream, by the name of the matrix that multiplies what the norm makes of it.
    const std::map<std::string, Size> & sizes() const { return sizes_; }

private:
    const Size * measured(const ggml_tensor * stream) const;

    std::map<std::string, Size> sizes_;
    std::map<const ggml_tensor *, Size> measured_;  // nodes of the graph that may be the residual stream
    std::map<std::string, Size> by_name_;           // the last of each name
    HostValues values_;
};

}  // namespace pyquant::calibrate
