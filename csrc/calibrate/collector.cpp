#include "calibrate/collector.h"

#include <chrono>
#include <cstring>
#include <stdexcept>

#include "calibrate/nodes.h"
#include "ggml.h"
#include "ggml/bf16_products.h"

namespace pyquant::calibrate {
namespace {

constexpr int64_t kFewestTokens = 16;  // llama-imatrix passes over smaller batches

int64_t n_groups(const ggml_tensor * matrix) {
    return matrix->ne[2] * matrix->ne[3];
}

// The rows that enter each group, in llama-imatrix's order. values, experts: of its input, and of whom that
// is sent to.
std::vector<std::vector<const float *>> rows_by_group(const ggml_tensor * node, const char * values,
                                                      const char * experts) {
    const ggml_tensor *matrix = node->src[0], *x = node->src[1], *ids = node->src[2];
    const auto at = [&](int64_t i1, int64_t i2, int64_t i3) {
        return reinterpret_cast<const float *>(values + i1 * int64_t(x->nb[1]) + i2 * int64_t(x->nb[2]) +
                                               i3 * int64_t(x->nb[3]));
    };
    std::vector<std::vector<const float *>> rows(size_t(n_groups(matrix)));
    if (node->op == GGML_OP_MUL_MAT_ID) {  // x: (n_in, n_used or 1, n_tokens), ids: (n_used, n_tokens)
        for (int64_t used = 0; used < ids->ne[0]; ++used) {
            for (int64_t token = 0; token < x->ne[2]; ++token) {
                int32_t expert;
                std::memcpy(&expert, experts + token * int64_t(ids->nb[1]) + used * int64_t(ids->nb[0]),
                            sizeof expert);
                rows.at(size_t(expert)).push_back(at(used % x->ne[1], token, 0));
            }
        }
        return rows;
    }
    for (int64_t i3 = 0; i3 < x->ne[3]; ++i3) {
        for (int64_t i2 = 0; i2 < x->ne[2]; ++i2) {
            auto & group = rows[size_t(i3 % matrix->ne[3] * matrix->ne[2] + i2 % matrix->ne[2])];
            for (int64_t i1 = 0; i1 < x->ne[1]; ++i1) {
                group.push_back(at(i1, i2, i3));
            }
        }
    }
    return rows;
}

bool evenly_spaced(const std::vector<const float *> & rows) {
    for (size_t i = 2; i < rows.size(); ++i) {
        if (rows[i] - rows[i - 1] != rows[1] - rows[0]) {
            return false;
        }
    }
    return true;
}

template <class Work>
auto timed(double & seconds, const Work & work) {
    using Clock = std::chrono::steady_clock;
    const struct Timer {
        double & seconds;
        const Clock::time_point begin;
        ~Timer() { seconds += std::chrono::duration<double>(Clock::now() - begin).count(); }
    } timer{seconds, Clock::now()};
    return work();
}

}  // namespace

Collector::Collector(std::set<std::string> wanted, bool with_output, int n_threads, bool on_device,
                     bool allows_bf16)
    : wanted_(std::move(wanted)),
      with_output_(with_output),
      allows_bf16_(allows_bf16),
      n_threads_(n_threads),
      devices_(on_device ? std::make_unique<DeviceSums>() : nullptr) {}

bool Collector::evaluate(ggml_tensor * node, bool ask, void * self) noexcept {
    auto & collector = *static_cast<Collector *>(self);
    try {
        if (ask) {
            if (collector.allows_bf16_) {
                in_ggml::allow_bf16(node);
            }
            return collector.failure_ || collector.ask(node);
        }
        if (collector.failure_ || std::strcmp(node->name, kLastHiddenState) == 0) {
            return false;
        }
        collector.collect(node);
        return true;
    } catch (...) {
        collector.failure_ = std::current_exception();
        return false;
    }
}

void Collector::rethrow() {
    wait_for_sums();
    if (failure_) {
        std::rethrow_exception(failure_);
    }
}

bool Collector::is_input(const ggml_tensor * node, const std::string & matrix) const {
    if (node->op == GGML_OP_MUL_MAT_ID) {
        return true;
    }
    return node->op == GGML_OP_MUL_MAT && node->src[1]->ne[1] >= kFewestTokens &&
           node->src[1]->type == GGML_TYPE_F32 &&
           (matrix.compare(0, 4, "blk.") == 0 ||
            (with_output_ && (matrix == "output.weight" || matrix == kTiedOutput)));
}

bool Collector::ask(const ggml_tensor * node) {
    const bool learning = !sums_;
    if (std::strcmp(node->name, kLastHiddenState) == 0) {
        ends_early_ = learning || ends_early_;
        return !learning && ends_early_;
    }
    if (!node->src[0] || !is_input(node, node->src[0]->name)) {
        return false;
    }
    const std::string matrix = node->src[0]->name;
    if (!inputs_.empty() && matrix == inputs_.front().matrices.front()) {
        seen_.clear();  // a new graph
    }
    const bool routed = node->op == GGML_OP_MUL_MAT_ID;
    const Source source{node->src[1], routed ? node->src[2] : nullptr, n_groups(node->src[0])};
    if (learning) {
        ends_early_ = false;
        learn(matrix, source, node);
        return false;
    }
    const auto known = input_of_.find(matrix);
    const auto [seen, is_new] = seen_.emplace(source, known == input_of_.end() ? 0 : known->second);
    if (known == input_of_.end() || seen->second != known->second) {
        throw std::runtime_error("its graph changes from batch to batch at " + matrix);
    }
    return is_new;
}

void Collector::learn(const std::string & matrix, const Source & source, const ggml_tensor * node) {
    if (input_of_.count(matrix)) {
        return;
    }
    const auto [seen, is_new] = seen_.emplace(source, inputs_.size());
    if (is_new) {
        inputs_.push_back({{},
                           node->src[0]->ne[0],
                           n_groups(node->src[0]),
                           node->op == GGML_OP_MUL_MAT_ID,
                           false,
                           false,
                           0});
    }
    Input & input = inputs_[seen->second];
    input.matrices.push_back(matrix);
    input.all_hessians = input.all_hessians || wanted_.count(matrix) > 0;
    input.first_tokens = input.all_hessians && !input.routed && input.n_groups == 1;
    input_of_[matrix] = seen->second;
}

std::vector<int64_t> Collector::sizes() const {
    std::vector<int64_t> sizes;
    for (const Input & input : inputs_) {
        sizes.insert(sizes.end(), size_t(input.n_groups), size(input));
    }
    return sizes;
}

void Collector::start(int64_t memory, Spool spool) {
    int64_t record = 0;
    for (Input & input : inputs_) {
        input.first_record = record;
        record += input.n_groups;
    }
    sums_ = std::make_unique<Accumulators>(sizes(), memory, std::move(spool));
    visit_ = sums_->progress().visit;
    seen_.clear();
}

void Collector::collect(const ggml_tensor * node) {
    const size_t number = input_of_.at(node->src[0]->name);
    const Input & input = inputs_[number];
    ggml_tensor * x = node->src[1];
    const uint64_t visit = visit_++;
    if (!is_on_host(x) && add_on_device(number, x, visit)) {
        return;
    }
    const char * experts = node->op == GGML_OP_MUL_MAT_ID ? experts_.of(node->src[2]) : nullptr;
    if (is_on_host(x)) {
        wait_for_sums();
        add_groups(input, rows_by_group(node, static_cast<const char *>(x->data), experts), visit);
        return;
    }
    const char * values = timed(waited_.for_copies, [&] { return values_[visit % 2].of(x); });
    wait_for_sums();
    summing_ =
        std::async(std::launch::async, [this, &input, visit, rows = rows_by_group(node, values, experts)] {
            add_groups(input, rows, visit);
        });
}

template <class Work>
auto Collector::keep_if_lost(const Work & work) {
    try {
        return work();
    } catch (...) {
        static_cast<void>(devices_.release());
        throw;
    }
}

bool Collector::add_on_device(size_t number, ggml_tensor * x, uint64_t visit) {
    const Input & input = inputs_[number];
    if (!devices_ || !input.first_tokens || x->ne[2] * x->ne[3] != 1) {
        return false;
    }
    wait_for_sums();
    if (sums_->holds(input.first_record, visit)) {
        return true;
    }
    if (n_begun_ > 0 && x->ne[1] % n_begun_ != 0) {
        throw std::runtime_error("its chunks are not computed together");
    }
    auto & sum = devices_->of(number);
    const bool added = timed(waited_.for_sums, [&] {
        return keep_if_lost([&] {
            return !sum.of_cpu && (sum.buffer || begin_on_device(input, sum, x)) &&
                   devices_->add(sum, x, weight_, n_begun_, visit);
        });
    });
    if (!added) {
        fetch_input(number);
    }
    return added;
}

bool Collector::begin_on_device(const Input & input, DeviceSums::Sum & sum, const ggml_tensor * x) {
    if (!devices_->make_room(sum, x)) {
        return false;
    }
    std::vector<float> sums(static_cast<size_t>(size(input)));  // of a run that was interrupted
    sums_->read(input.first_record, size(input), sums.data());
    DeviceSums::load(sum, layout(input), sums.data());
    return true;
}

void Collector::fetch_input(size_t number) {
    const Input & input = inputs_[number];
    auto & sum = devices_->of(number);
    if (sum.count > 0) {
        sums_->visit(input.first_record, sum.visit, sum.count, [&](float * sums) {
            keep_if_lost([&] { DeviceSums::fetch(sum, layout(input), sums); });
        });
    }
}

void Collector::fetch() {
    for (size_t number = 0; devices_ && number < inputs_.size(); ++number) {
        fetch_input(number);
    }
}

void Collector::wait_for_sums() {
    if (summing_.valid()) {
        timed(waited_.for_sums, [&] { summing_.get(); });
    }
}

void Collector::add_groups(const Input & input, const std::vector<std::vector<const float *>> & rows,
                           uint64_t visit) {
    for (int64_t group = 0; group < input.n_groups; ++group) {
        if (!rows[size_t(group)].empty()) {
            add(input, group, rows[size_t(group)], visit);
        }
    }
}

void Collector::add(const Input & input, int64_t group, const std::vector<const float *> & rows,
                    uint64_t visit) {
    const Layout layout = this->layout(input);
    const auto n = int64_t(rows.size()), n_in = input.n_in;
    const double count = double(weight_) * double(n);
    sums_->visit(input.first_record + group, visit, count, [&](float * sums) {
        Rows block{rows[0], n, n > 1 ? rows[1] - rows[0] : n_in};
        if (!evenly_spaced(rows) || block.stride < n_in) {
            gathered_.resize(size_t(n * n_in));
            for (int64_t i = 0; i < n; ++i) {
                std::memcpy(&gathered_[size_t(i * n_in)], rows[size_t(i)], size_t(n_in) * sizeof(float));
            }
            block = {gathered_.data(), n, n_in};
        }
        add_rows(layout, block, weight_, Bf16Strips::supported() ? &rounded_ : nullptr, n_threads_, sums);
        if (input.first_tokens && n_begun_ > 0) {
            add_first_tokens(block, n_in, sums + layout.size());
        }
    });
}

void Collector::add_first_tokens(const Rows & rows, int64_t n_in, float * sums) const {
    if (rows.n % n_begun_ != 0) {
        throw std::runtime_error("its chunks are not computed together");
    }
    for (int64_t token = 0; token < rows.n; token += rows.n / n_begun_) {
        for (int64_t i = 0; i < n_in; ++i) {
            sums[i] += weight_ * rows.data[token * rows.stride + i];
        }
    }
}

}  // namespace pyquant::calibrate
