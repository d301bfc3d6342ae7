#include "calibrate/staged_pass.h"

#include <algorithm>
#include <stdexcept>

#include "ggml.h"
#include "ggml/bf16_products.h"

namespace pyquant::calibrate {

bool StagedPass::evaluate(ggml_tensor * node, bool ask, void * self) noexcept {
    auto & pass = *static_cast<StagedPass *>(self);
    try {
        if (ask) {
            return pass.failure_ || pass.ask(node);
        }
        return !pass.failure_ && pass.reached();
    } catch (...) {
        pass.failure_ = std::current_exception();
        return false;
    }
}

void StagedPass::rethrow() {
    if (failure_) {
        std::rethrow_exception(failure_);
    }
}

void StagedPass::learn() {
    graph_ = {};
    learning_ = true;
}

void StagedPass::end_learning() {
    if (graph_.leaves_device()) {
        throw std::runtime_error(
            "the CPU computes parts of it that a GPU goes on from, and so no pass can be taken up there: "
            "give --gpu-layers 0");
    }
    stages_ = graph_.stages(matrices_);
}

void StagedPass::begin(std::optional<size_t> from, std::optional<size_t> to, PassStates & states,
                       int64_t state) {
    learning_ = stopped_ = false;
    from_ = from, to_ = to, states_ = &states, state_ = state;
    ++n_begun_;
    seen_.clear();
    write_to_device();
}

bool StagedPass::ask(ggml_tensor * node) {
    if (learning_) {
        graph_.add(node);
        node->op = GGML_OP_NONE;
        return false;
    }
    const size_t i = seen_.size(), begin = from_ ? stages_.at(*from_).cut : 0;
    const size_t end = to_ ? stages_.at(*to_).cut : graph_.size() + 1;
    // A graph that llama.cpp uses again has nodes that were passed over.
    if (stopped_ || i >= graph_.size() || (node->op != GGML_OP_NONE && node->op != graph_.op(i))) {
        throw std::runtime_error("its graph changes from batch to batch");
    }
    node->op = graph_.n_before_device() <= i && i < begin ? GGML_OP_NONE : ggml_op(graph_.op(i));
    if (allows_bf16_) {
        in_ggml::allow_bf16(node);
    }
    seen_.push_back(node);
    // It also stops where it goes on: copies to a device are done then, and go over nothing that is loaded.
    return i + 1 == end || i + 1 == begin;
}

bool StagedPass::reached() {
    const bool goes_on = from_ && seen_.size() == stages_.at(*from_).cut;
    goes_on ? load() : save();
    return goes_on;
}

void StagedPass::load() {
    int64_t offset = 0;
    for (const size_t i : stages_[*from_].kept) {
        const auto n = int64_t(ggml_nbytes(seen_[i]));
        if (is_on_host(seen_[i])) {
            states_->read(state_, offset, seen_[i]->data, n);
        } else {
            loaded_.resize(size_t(n));
            states_->read(state_, offset, loaded_.data(), n);
            ggml_backend_tensor_set(seen_[i], loaded_.data(), 0, size_t(n));
        }
        offset += n;
    }
}

void StagedPass::save() {
    stopped_ = true;
    const Stage & stage = stages_[*to_];
    int64_t offset = 0;
    for (size_t k = 0; stage.resumes && k < stage.kept.size(); ++k) {
        const ggml_tensor * tensor = seen_[stage.kept[k]];
        const auto n = int64_t(ggml_nbytes(tensor));
        states_->write(state_, offset, kept_.of(tensor), n);
        offset += n;
    }
}

StagedPass::Seen StagedPass::seen(size_t node, HostValues & values) {
    const bool copies = graph_.n_before_device() > 0;
    return node < seen_.size() ? Seen{seen_[node], values.of(seen_[node], copies)} : Seen{nullptr, nullptr};
}

StagedPass::Own StagedPass::own(size_t stage, size_t i) {
    ggml_tensor * matrix = stages_.at(stage).matrices.at(i);
    for (const Owned & owned : owned_) {
        if (owned.copy.matrix() == matrix) {
            return {matrix, owned.copy.values()};
        }
    }
    owned_.push_back({stage, WeightsCopy(matrix)});
    return {matrix, owned_.back().copy.values()};
}

void StagedPass::write_to_device() {
    const auto on_device = std::stable_partition(
        owned_.begin(), owned_.end(), [](const Owned & owned) { return is_on_host(owned.copy.matrix()); });
    for (auto owned = on_device; owned != owned_.end(); ++owned) {
        ggml_tensor * matrix = owned->copy.matrix();
        ggml_backend_tensor_set(matrix, owned->copy.values(), 0, ggml_nbytes(matrix));
    }
    owned_.erase(on_device, owned_.end());
}

void StagedPass::disown_before(size_t stage) {
    const auto is_behind = [&](const Owned & owned) { return owned.stage < stage; };
    for (const Owned & owned : owned_) {
        if (is_behind(owned)) {
            owned.copy.restore();
        }
    }
    owned_.erase(std::remove_if(owned_.begin(), owned_.end(), is_behind), owned_.end());
}

}  // namespace pyquant::calibrate
