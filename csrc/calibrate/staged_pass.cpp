#include "calibrate/staged_pass.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#include "ggml.h"

namespace pyquant::calibrate {

bool StagedPass::evaluate(ggml_tensor * node, bool ask, void * self) noexcept {
    auto & pass = *static_cast<StagedPass *>(self);
    try {
        if (ask) {
            return pass.failure_ || pass.ask(node);
        }
        if (!pass.failure_) {
            pass.save();
        }
    } catch (...) {
        pass.failure_ = std::current_exception();
    }
    return false;
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

void StagedPass::begin(std::optional<size_t> from, std::optional<size_t> to, PassStates & states,
                       int64_t state) {
    learning_ = stopped_ = false;
    from_ = from, to_ = to, states_ = &states, state_ = state;
    seen_.clear();
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
    node->op = i < begin ? GGML_OP_NONE : ggml_op(graph_.op(i));
    if (i == begin && from_) {
        load();
    }
    seen_.push_back(node);
    return i + 1 == end;
}

void StagedPass::load() {
    int64_t offset = 0;
    for (const size_t i : stages_[*from_].kept) {
        const auto n = int64_t(ggml_nbytes(seen_[i]));
        states_->read(state_, offset, seen_[i]->data, n);
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
        states_->write(state_, offset, tensor->data, n);
        offset += n;
    }
}

ggml_tensor * StagedPass::own(size_t stage, size_t i) {
    ggml_tensor * matrix = stages_.at(stage).matrices.at(i);
    for (const Owned & owned : owned_) {
        if (owned.matrix == matrix) {
            return matrix;
        }
    }
    constexpr size_t kAlignment = 64;  // of the widest vectors
    const size_t size = (ggml_nbytes(matrix) + kAlignment - 1) / kAlignment * kAlignment;
    void * values = std::aligned_alloc(kAlignment, size);
    if (!values) {
        throw std::bad_alloc();
    }
    owned_.push_back({stage, matrix, matrix->data, {values, std::free}});
    std::memcpy(values, matrix->data, ggml_nbytes(matrix));
    matrix->data = values;
    return matrix;
}

void StagedPass::disown_before(size_t stage) {
    for (const Owned & owned : owned_) {
        if (owned.stage < stage) {
            owned.matrix->data = owned.mapped;
        }
    }
    owned_.erase(std::remove_if(owned_.begin(), owned_.end(),
                                [&](const Owned & owned) { return owned.stage < stage; }),
                 owned_.end());
}

}  // namespace pyquant::calibrate
