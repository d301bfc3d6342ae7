// Finds in the graph of a pass where llama.cpp holds the weights of the model that it runs: they can be
// changed there between two passes.
#pragma once

#include <map>
#include <string>

struct ggml_tensor;

namespace pyquant::calibrate {

class RunningWeights {
public:
    // A ggml_backend_sched_eval_callback; self: a RunningWeights. It stops the graph nowhere.
    static bool evaluate(ggml_tensor * node, bool ask, void * self) noexcept;

    // Tensors that the passes so far multiplied by or took rows of, by name.
    const std::map<std::string, ggml_tensor *> & tensors() const { return tensors_; }

private:
    std::map<std::string, ggml_tensor *> tensors_;
};

}  // namespace pyquant::calibrate
