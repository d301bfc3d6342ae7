// Two passes over the same tokens, hand in hand: of a model as it is, and of a copy of it whose matrices
// are rounded when they are reached.
//
// Every operation is computed alone, so before a matrix is first multiplied both passes have at hand what
// enters it: its inputs, and its inputs as the rounding of all matrices before has changed them. While
// one pass computes, the other waits, and each may have all processors.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "calibrate/moments.h"

struct ggml_tensor;

namespace pyquant::calibrate {

class Lockstep {
public:
    enum Side { kOriginal, kChanged };

    // One of the passes, as llama.cpp's callback gets it.
    struct Pass {
        Lockstep * both;
        Side side;
        bool begun;
    };

    // Puts the values that a matrix has when rounded into the copy's. original, changed: what enters it in
    // either pass, token by token; null where tokens cannot be told apart, as those that are sent to experts.
    using Round = std::function<void(ggml_tensor * matrix, const Rows * original, const Rows * changed)>;

    Lockstep(std::set<std::string> matrices, Round round);

    Pass & pass(Side side) { return passes_[side]; }

    // A ggml_backend_sched_eval_callback; pass: a Pass. No exception leaves it: both passes end, and
    // rethrow() has it.
    static bool evaluate(ggml_tensor * node, bool ask, void * pass) noexcept;

    // To be said when a pass has ended, however it did: the other one waits no longer.
    void leave(Side side);

    void rethrow();

private:
    void reach(Pass & pass, ggml_tensor * node);
    void hand_over(Side to);
    void wait_for_turn(Side side);
    bool goes_on(Side side);

    std::set<std::string> left_;  // matrices that are not rounded yet
    Round round_;
    Pass passes_[2];

    std::mutex mutex_;
    std::condition_variable changed_;
    Side turn_ = kOriginal;
    bool gone_[2] = {};

    const ggml_tensor * original_node_ = nullptr;  // where that pass waits
    std::exception_ptr failure_;
};

}  // namespace pyquant::calibrate
