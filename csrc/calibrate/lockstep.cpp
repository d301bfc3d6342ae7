#include "calibrate/lockstep.h"

#include <cstring>
#include <optional>
#include <stdexcept>

#include "calibrate/nodes.h"
#include "ggml.h"

namespace pyquant::calibrate {
namespace {

bool multiplies(const ggml_tensor * node) {
    return node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_MUL_MAT_ID;
}

std::optional<Rows> tokens_of(const ggml_tensor * node) {
    const ggml_tensor * x = node->src[1];
    const bool plain = node->op == GGML_OP_MUL_MAT && x->type == GGML_TYPE_F32 && x->nb[0] == sizeof(float);
    const bool one_matrix = node->src[0]->ne[2] * node->src[0]->ne[3] == 1;
    // Recurrent models keep their sequences apart: their tokens too are rows at even distances.
    const bool even = (x->ne[2] == 1 || x->nb[2] == size_t(x->ne[1]) * x->nb[1]) &&
                      (x->ne[3] == 1 || x->nb[3] == size_t(x->ne[2]) * x->nb[2]);
    if (!plain || !one_matrix || !even) {
        return std::nullopt;
    }
    return Rows{static_cast<const float *>(x->data), x->ne[1] * x->ne[2] * x->ne[3],
                int64_t(x->nb[1] / sizeof(float))};
}

}  // namespace

Lockstep::Lockstep(std::set<std::string> matrices, Round round)
    : left_(std::move(matrices)),
      round_(std::move(round)),
      passes_{{this, kOriginal, false}, {this, kChanged, false}} {}

bool Lockstep::evaluate(ggml_tensor * node, bool ask, void * user) noexcept {
    auto & pass = *static_cast<Pass *>(user);
    if (!ask) {
        return pass.both->goes_on(pass.side) && std::strcmp(node->name, kLastHiddenState) != 0;
    }
    try {
        pass.both->reach(pass, node);
    } catch (...) {
        pass.both->failure_ = std::current_exception();
    }
    return true;  // computed alone
}

void Lockstep::rethrow() {
    if (failure_) {
        std::rethrow_exception(failure_);
    }
}

void Lockstep::leave(Side side) {
    const std::lock_guard<std::mutex> lock(mutex_);
    gone_[side] = true;
    changed_.notify_all();
}

void Lockstep::hand_over(Side to) {
    const std::lock_guard<std::mutex> lock(mutex_);
    turn_ = to;
    changed_.notify_all();
}

void Lockstep::wait_for_turn(Side side) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == side || gone_[1 - side]; });
}

// Until all matrices are rounded; the pass of the model as it is, no longer than the other.
bool Lockstep::goes_on(Side side) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !failure_ && !left_.empty() && !(side == kOriginal && gone_[kChanged]);
}

void Lockstep::reach(Pass & pass, ggml_tensor * node) {
    if (pass.side == kChanged && !pass.begun) {
        wait_for_turn(kChanged);
    }
    pass.begun = true;
    if (failure_ || !multiplies(node) || left_.count(node->src[0]->name) == 0) {
        return;
    }
    if (pass.side == kOriginal) {
        original_node_ = node;
        hand_over(kChanged);
        wait_for_turn(kOriginal);
        return;
    }
    if (!original_node_) {
        hand_over(kOriginal);
        wait_for_turn(kChanged);
    }
    const std::string name = node->src[0]->name;
    std::optional<Rows> original, changed;
    if (original_node_) {
        original = tokens_of(original_node_), changed = tokens_of(node);
        if (name != original_node_->src[0]->name || (original && (!changed || original->n != changed->n))) {
            throw std::runtime_error("its graph is not the same in both passes at " + name);
        }
    }
    round_(node->src[0], original ? &*original : nullptr, original ? &*changed : nullptr);
    original_node_ = nullptr;
    left_.erase(name);
}

}  // namespace pyquant::calibrate
