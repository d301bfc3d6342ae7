// Finds in the graph of a pass where llama.cpp holds the weights of the model that it runs: they can be
// changed there between two passes.
#pragma once

#include <map>
#include <string>

#include "calibrate/weights_copy.h"

struct ggml_tensor;

namespace pyquant::calibrate {

class RunningWeights {
public:
    // A ggml_backend_sched_eval_callback; self: a RunningWeights. It stops the graph nowhere.
    static bool evaluate(ggml_tensor * node, bool ask, void * self) noexcept;

    // Tensors that the passes so far multiplied by or took rows of, by name.
    const std::map<std::string, ggml_tensor *> & tensors() const { return tensors_; }

    // Has one use a copy of its weights until restore(); returns the copy, to be changed.
    void * copy(const std::string & name) {
        return copies_.try_emplace(name, tensors_.at(name)).first->second.values();
    }
    void restore(const std::string & name) {
        copies_.at(name).restore();
        copies_.erase(name);
    }

private:
    std::map<std::string, ggml_tensor *> tensors_;
    std::map<std::string, WeightsCopy> copies_;
};

}  // namespace pyquant::calibrate
