// Passes that stop before a matrix and go on from there, walked through as llama.cpp's scheduler walks: what
// was computed before is kept, and nothing of it is computed again.
#include "calibrate/staged_pass.h"

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "ggml.h"
#include "support.h"

using namespace pyquant::calibrate;

namespace {

constexpr int64_t kTokens = 3, kWidth = 4, kState = 2 * kTokens * kWidth * int64_t(sizeof(float));

// Nodes of a graph: the stream, then for each matrix the product of what is before it, and the stream with
// that added. Experts have what sends tokens to them.
class Graph {
public:
    explicit Graph(const std::vector<std::string> & names, int routed = -1)
        : nodes_(1 + 2 * names.size()),
          values_(nodes_.size(), std::vector<float>(kTokens * kWidth)),
          matrices_(names.size()),
          weights_(names.size(), 2) {
        for (size_t i = 0; i < nodes_.size(); ++i) {
            ggml_tensor & node = nodes_[i];
            node = {};
            node.type = GGML_TYPE_F32;
            node.ne[0] = kWidth, node.ne[1] = kTokens, node.ne[2] = node.ne[3] = 1;
            node.nb[0] = sizeof(float), node.nb[1] = kWidth * sizeof(float);
            node.nb[2] = node.nb[3] = kTokens * node.nb[1];
            node.data = values_[i].data();
            node.op = i == 0 ? GGML_OP_GET_ROWS : i % 2 == 0 ? GGML_OP_ADD : GGML_OP_MUL_MAT;
        }
        for (size_t i = 0; i < names.size(); ++i) {
            ggml_tensor &product = nodes_[2 * i + 1], &stream = nodes_[2 * i + 2];
            matrices_[i] = {};
            std::strncpy(matrices_[i].name, names[i].c_str(), GGML_MAX_NAME - 1);
            product.op = int(i) == routed ? GGML_OP_MUL_MAT_ID : product.op;
            product.src[0] = &matrices_[i], product.src[1] = &nodes_[2 * i];
            product.src[2] = int(i) == routed ? &nodes_[0] : nullptr;
            stream.src[0] = &nodes_[2 * i], stream.src[1] = &product;
        }
    }

    // The i-th product is written into this cache, which the last node reads.
    void write_cache(size_t i, ggml_tensor & cache) {
        cache = {};
        nodes_[2 * i + 1].view_src = &cache;
        nodes_.back().src[2] = &cache;
    }

    // Does what ggml_backend_sched does with a callback. Returns how many nodes were computed.
    size_t walk(StagedPass & pass, float begin) {
        size_t n_computed = 0;
        for (size_t first = 0; first < nodes_.size(); ++first) {
            size_t last = first;
            bool needed = StagedPass::evaluate(&nodes_[last], true, &pass);
            while (!needed && last + 1 < nodes_.size()) {
                needed = StagedPass::evaluate(&nodes_[++last], true, &pass);
            }
            for (size_t i = first; i <= last; ++i) {
                n_computed += compute(i, begin);
            }
            if (needed && !StagedPass::evaluate(&nodes_[last], false, &pass)) {
                break;
            }
            first = last;
        }
        return n_computed;
    }

    void forget() {
        for (auto & values : values_) {
            std::fill(values.begin(), values.end(), -1.0f);
        }
    }

    const std::vector<float> & value(size_t node) const { return values_[node]; }
    void round(size_t matrix) { weights_[matrix] = 0.5f; }

private:
    bool compute(size_t i, float begin) {
        if (nodes_[i].op == GGML_OP_NONE) {
            return false;
        }
        for (size_t k = 0; k < values_[i].size(); ++k) {
            values_[i][k] = i == 0       ? begin + float(k)
                            : i % 2 == 1 ? values_[i - 1][k] * weights_[i / 2]
                                         : values_[i - 2][k] + values_[i - 1][k];
        }
        return true;
    }

    std::vector<ggml_tensor> nodes_;
    std::vector<std::vector<float>> values_;
    std::vector<ggml_tensor> matrices_;
    std::vector<float> weights_;
};

const std::vector<std::string> kNames = {"q", "unwanted", "experts", "down"};
const std::set<std::string> kWanted = {"q", "experts", "down"};

void learn(StagedPass & pass, Graph & graph) {
    pass.learn();
    expect(graph.walk(pass, 0) == 0, "learning computes nothing");
    pass.end_learning();
}

void stop_and_go_on(int64_t memory) {
    Graph graph(kNames, 2);
    StagedPass pass(kWanted, true);
    learn(pass, graph);
    const auto & stages = pass.stages();
    expect(stages.size() == 3 && stages[0].cut == 1 && stages[1].cut == 5 && stages[2].cut == 7, "cuts");
    expect(stages[1].kept == std::vector<size_t>({0, 4}), "the stream, and what sends tokens to experts");
    expect(stages[2].kept == std::vector<size_t>({6}), "the stream alone");
    expect(stages[1].n_bytes == kState && stages[1].resumes, "what a state takes");

    const ScratchFile file;
    PassStates states(2, kState, memory, file.descriptor());
    expect(file.size() == std::max<int64_t>(2 - memory / kState, 0) * kState,
           "what does not fit is in the file");
    std::optional<size_t> left;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
        for (const int64_t piece : {0, 1}) {
            graph.forget();
            pass.begin(left, stage, states, piece);
            const size_t n_computed = graph.walk(pass, float(10 * piece));
            pass.rethrow();
            expect(n_computed == stages[stage].cut - (left ? stages[*left].cut : 0), "nothing twice");
            expect(pass.input().tensor->data == graph.value(stages[stage].input).data(), "its input");
            expect((pass.experts().tensor != nullptr) == (stage == 1), "experts");
            // The stream is begin + k, times 1 + the weight of each matrix behind it.
            float factor = 1;
            for (size_t i = 0; i < stages[stage].cut / 2; ++i) {
                const bool rounded = (i == 0 && stage > 0) || (i == 2 && stage > 1);
                factor *= rounded ? 1.5f : 3;
            }
            for (size_t k = 0; k < size_t(kTokens * kWidth); ++k) {
                const float expected = (float(10 * piece) + float(k)) * factor;
                expect(graph.value(stages[stage].input)[k] == expected, "what it would be in one pass");
            }
        }
        graph.round(stage == 0 ? 0 : stage + 1);
        left = stage;
    }
}

void caches() {
    Graph graph(kNames);
    ggml_tensor cache;
    graph.write_cache(1, cache);
    StagedPass pass(kWanted, true);
    learn(pass, graph);
    expect(pass.stages()[0].resumes, "the cache is not written yet");
    expect(!pass.stages()[1].resumes && !pass.stages()[2].resumes, "the cache would be missing");
}

void other_graphs() {
    const ScratchFile file;
    PassStates states(1, kState, 0, file.descriptor());
    Graph graph(kNames), other(kNames, 1);
    StagedPass pass(kWanted, true);
    learn(pass, graph);
    pass.begin({}, 1, states, 0);
    other.walk(pass, 0);
    expect_error<std::runtime_error>([&] { pass.rethrow(); }, "a graph that changes is refused");

    Graph again(kNames);
    StagedPass twice(kWanted, true);
    learn(twice, again);
    twice.begin({}, 0, states, 0);
    again.walk(twice, 0);
    twice.rethrow();
    again.walk(twice, 0);
    expect_error<std::runtime_error>([&] { twice.rethrow(); },
                                     "tokens that come in several portions are refused");
}

}  // namespace

int main() {
    for (const int64_t memory : {int64_t(0), kState, 2 * kState}) {
        stop_and_go_on(memory);
    }
    caches();
    other_graphs();
}
