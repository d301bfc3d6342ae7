// A model's pass over tokens that stops at each stage of its graph, and goes on from there later.
//
// So all pieces of a text can be brought to one matrix before any goes on with it, whatever memory there is:
// of each piece only what is in use there is kept. Nodes that are behind a pass already are passed over.
//
// A device may compute it if it has all layers: what goes from one device to another is a copy, which a pass
// that goes on later would lack. What the CPU computes before that, as embeddings, is computed again.
#pragma once

#include <exception>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "calibrate/graph_stages.h"
#include "calibrate/host_values.h"
#include "calibrate/pass_states.h"
#include "calibrate/weights_copy.h"

struct ggml_tensor;

namespace pyquant::calibrate {

class StagedPass {
public:
    // allows_bf16: whether products of each pass may round to BF16 (ggml/bf16_products.h).
    StagedPass(std::set<std::string> matrices, bool allows_bf16)
        : matrices_(std::move(matrices)),
          allows_bf16_(allows_bf16) {}

    // A ggml_backend_sched_eval_callback; self: a StagedPass. No exception leaves it: the pass ends, and
    // rethrow() has it.
    static bool evaluate(ggml_tensor * node, bool ask, void * self) noexcept;
    void rethrow();

    // The next pass computes nothing and shows the graph; then there are stages.
    void learn();
    // Throws std::runtime_error: parts of the graph are on several devices.
    void end_learning();
    const std::vector<Stage> & stages() const { return stages_; }

    // The next pass goes on from stage `from`, as it was left in `state`, or begins if there is none; it
    // stops before stage `to`, and is kept in `state` if it can go on from there. Without `to` it goes on to
    // its end, where llama.cpp has its logits, and `state` stays as it is.
    void begin(std::optional<size_t> from, std::optional<size_t> to, PassStates & states, int64_t state);

    // A tensor, and its values where the CPU can read them.
    struct Seen {
        const ggml_tensor * tensor;
        const char * values;
    };
    // Those at which the pass stopped, until the next begins, with a device until the one after that; null if
    // the graph computes no such tensor.
    Seen input() { return seen(stages_.at(to_.value()).input, input_[n_begun_ % 2]); }
    Seen stream() { return seen(stages_.at(to_.value()).stream, stream_[n_begun_ % 2]); }
    Seen experts() { return seen(stages_.at(to_.value()).experts, experts_[n_begun_ % 2]); }

    struct Own {
        const ggml_tensor * matrix;
        void * values;
    };
    // Gives a stage's matrix a copy of its values, to be changed. disown_before() gives matrices of earlier
    // stages the model's values again, which no pass that goes on behind them sees. Not to be called when the
    // model is gone. On a device the matrix itself is changed, when the next pass begins, which ends the
    // copy.
    Own own(size_t stage, size_t i);
    void disown_before(size_t stage);

private:
    struct Owned {
        size_t stage;
        WeightsCopy copy;
    };

    bool ask(ggml_tensor * node);
    bool reached();
    void load();
    void save();
    void write_to_device();
    Seen seen(size_t node, HostValues & values);

    std::set<std::string> matrices_;
    bool allows_bf16_;
    bool learning_ = false;
    GraphStages graph_;
    std::vector<Stage> stages_;
    std::vector<Owned> owned_;

    std::optional<size_t> from_, to_;
    PassStates * states_ = nullptr;
    int64_t state_ = 0;

    std::vector<ggml_tensor *> seen_;  // nodes of the pass at work
    size_t n_begun_ = 0;               // passes: the CPU reads what one has left while the next goes on
    HostValues input_[2], stream_[2], experts_[2], kept_;
    std::vector<char> loaded_;
    bool stopped_ = false;
    std::exception_ptr failure_;
};

}  // namespace pyquant::calibrate
