// Finds in the graph of a pass where llama.cpp holds the weights of the model that it runs: they can be
// changed there between two passes.
#pragma once

#include <map>
#include <string>

#include "calibrate/own_room.h"

struct ggml_tensor;

namespace pyquant::calibrate {

class RunningWeights {
public:
    // A ggml_backend_sched_eval_callback; self: a RunningWeights. It stops the graph nowhere.
    static bool evaluate(ggml_tensor * node, bool ask, void * self) noexcept;

    // Tensors that the passes so far multiplied by or took rows of, by name.
    const std::map<std::string, ggml_tensor *> & tensors() const { return tensors_; }

    // Gives one room of its own, and returns its values, to be changed; until give_back().
    void * own(const std::string & name) {
        return rooms_.try_emplace(name, tensors_.at(name)).first->second.values();
    }
    void give_back(const std::string & name) {
        rooms_.at(name).give_back();
        rooms_.erase(name);
    }

private:
    std::map<std::string, ggml_tensor *> tensors_;
    std::map<std::string, OwnRoom> rooms_;
};

}  // namespace pyquant::calibrate
