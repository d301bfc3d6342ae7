// Two threads that walk through graphs as llama.cpp's scheduler does, and are kept in step: one after the
// other they compute, and what enters a matrix is there for both when it is rounded.
#include "calibrate/lockstep.h"

#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

#include "ggml.h"
#include "support.h"

using namespace pyquant::calibrate;

namespace {

constexpr int64_t kTokens = 3, kWidth = 4;

// A chain of multiplications, each of what the one before it gave: node i has matrix i.
class Graph {
public:
    // routed: that node is one of experts, whose tokens cannot be told apart. A graph ends with the last
    // hidden state or without one.
    Graph(const std::vector<std::string> & names, int routed, bool ends) : nodes_(names.size() + 1) {
        matrices_.resize(names.size());
        values_.assign(names.size() + 1, std::vector<float>(kTokens * kWidth, 1));
        inputs_.resize(names.size());
        weights_.assign(names.size(), 1);
        for (size_t i = 0; i < names.size(); ++i) {
            ggml_tensor &matrix = matrices_[i], &input = inputs_[i], &node = nodes_[i];
            matrix = {}, input = {}, node = {};
            std::strncpy(matrix.name, names[i].c_str(), GGML_MAX_NAME - 1);
            matrix.data = &weights_[i];
            input.type = GGML_TYPE_F32;
            input.ne[0] = kWidth, input.ne[1] = kTokens, input.ne[2] = input.ne[3] = 1;
            input.nb[0] = sizeof(float), input.nb[1] = kWidth * sizeof(float);
            input.data = values_[i].data();
            node.op = int(i) == routed ? GGML_OP_MUL_MAT_ID : GGML_OP_MUL_MAT;
            node.src[0] = &matrix, node.src[1] = &input;
        }
        nodes_.back() = {};
        nodes_.back().op = GGML_OP_RMS_NORM;
        std::strncpy(nodes_.back().name, ends ? "result_norm" : "other", GGML_MAX_NAME - 1);
    }

    // What ggml_backend_sched does with a callback. Returns how many nodes were computed.
    size_t walk(Lockstep & steps, Lockstep::Side side) {
        size_t n = 0;
        for (; n < nodes_.size(); ++n) {
            Lockstep::evaluate(&nodes_[n], true, &steps.pass(side));
            compute(n);
            if (!Lockstep::evaluate(&nodes_[n], false, &steps.pass(side))) {
                break;
            }
        }
        steps.leave(side);
        return n;
    }

    float weight(size_t i) const { return weights_[i]; }

private:
    void compute(size_t i) {
        if (i < matrices_.size()) {
            for (size_t k = 0; k < values_[i].size(); ++k) {
                values_[i + 1][k] = values_[i][k] * weights_[i] + float(k);
            }
        }
    }

    std::vector<ggml_tensor> nodes_, matrices_, inputs_;
    std::vector<std::vector<float>> values_;
    std::vector<float> weights_;
};

void walk_both(Lockstep & steps, Graph & original, Graph & changed) {
    std::thread other([&] { original.walk(steps, Lockstep::kOriginal); });
    changed.walk(steps, Lockstep::kChanged);
    other.join();
}

float sum(const Rows & rows) {
    float total = 0;
    for (int64_t t = 0; t < rows.n; ++t) {
        for (int64_t k = 0; k < kWidth; ++k) {
            total += rows.data[t * rows.stride + k];
        }
    }
    return total;
}

const std::vector<std::string> kNames = {"q", "unwanted", "k", "experts", "up", "down"};
const std::set<std::string> kWanted = {"q", "k", "experts", "up", "down"};

// A rounded matrix writes into the copy while the original waits.
void round_in_order() {
    Graph original(kNames, 3, true), changed(kNames, 3, true);
    std::vector<std::string> order;
    std::vector<float> gone_by;
    Lockstep steps(kWanted, [&](ggml_tensor * matrix, const Rows * before, const Rows * now) {
        order.push_back(matrix->name);
        expect((before == nullptr) == (order.back() == "experts"),
               "the tokens of experts are not told apart");
        if (before) {
            gone_by.push_back(sum(*before) - sum(*now));
        }
        *static_cast<float *>(matrix->data) = 0.5f;
    });
    walk_both(steps, original, changed);
    steps.rethrow();
    expect(order == std::vector<std::string>({"q", "k", "experts", "up", "down"}),
           "in the order of the graph");
    expect(gone_by[0] == 0 && gone_by[1] > 0, "later matrices see what was rounded before them");
    for (size_t i = 0; i < kNames.size(); ++i) {
        expect(original.weight(i) == 1, "the model as it is stays so");
        expect((changed.weight(i) == 0.5f) == (kWanted.count(kNames[i]) == 1), "the wanted ones are rounded");
    }
}

// Whichever pass ends early, the other waits no longer.
void end_early() {
    for (const size_t n_original : {0, 1, 3, 6}) {
        for (const size_t n_changed : {0, 1, 3, 6}) {
            const std::vector<std::string> some(kNames.begin(), kNames.begin() + long(n_original));
            const std::vector<std::string> others(kNames.begin(), kNames.begin() + long(n_changed));
            Graph original(some, -1, false), changed(others, -1, true);
            size_t n_rounded = 0;
            Lockstep steps(kWanted, [&](ggml_tensor *, const Rows *, const Rows *) { ++n_rounded; });
            walk_both(steps, original, changed);
            steps.rethrow();
            const size_t n_wanted = n_changed - (n_changed > 1);
            expect(n_rounded == n_wanted, "every matrix that the copy comes to is rounded");
        }
    }
}

void fail() {
    Graph original(kNames, -1, true), changed(kNames, -1, true);
    int n_rounded = 0;
    Lockstep steps(kWanted, [&](ggml_tensor *, const Rows *, const Rows *) {
        if (++n_rounded == 3) {
            throw std::domain_error("rounding");
        }
    });
    walk_both(steps, original, changed);
    expect_error<std::domain_error>([&] { steps.rethrow(); }, "what rounding throws is kept");
    expect(n_rounded == 3, "nothing is rounded after a failure");

    Graph one({"q", "k"}, -1, true), another({"k", "q"}, -1, true);
    Lockstep apart(kWanted, [](ggml_tensor *, const Rows *, const Rows *) {});
    walk_both(apart, one, another);
    expect_error<std::runtime_error>([&] { apart.rethrow(); }, "graphs that are not the same are refused");
}

}  // namespace

int main() {
    for (int i = 0; i < 100; ++i) {
        round_in_order();
        end_early();
        fail();
    }
}
