// Finds the places where a model's graph can be left before a matrix, and taken up again later.
//
// A cut is the place before a multiplication. What has to be kept of a pass to go on from there are the
// tensors that were computed before it and are used after it. Matrices that share an input share a cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

struct ggml_tensor;

namespace pyquant::calibrate {

// The part of a graph from one cut to the next.
struct Stage {
    static constexpr size_t kNone = size_t(-1);

    std::vector<ggml_tensor *> matrices;  // that have the same input
    size_t cut;                           // the node that multiplies the first of them
    size_t input, experts;                // nodes: their input, and who its tokens are sent to; or kNone
    size_t stream;     // node: what the one matrix's product is added to, known at the cut; or kNone
    int64_t n_tokens;  // that reach it
    // Nodes in use at the cut.
    std::vector<size_t> kept;
    int64_t n_bytes;
    // True if that is all: a cache that is written before the cut and read after it would be missing.
    bool resumes;
};

// The nodes of a graph, in their order, as llama.cpp's callback shows them.
class GraphStages {
public:
    void add(const ggml_tensor * node);

    // The stages of these matrices, each at the first multiplication with it.
    std::vector<Stage> stages(const std::set<std::string> & matrices) const;

    size_t size() const { return nodes_.size(); }
    int op(size_t node) const { return nodes_[node].op; }

    // Nodes that the CPU computes before a device goes on: none where there is no device.
    size_t n_before_device() const { return on_device_ ? *on_device_ : 0; }
    // Whether the CPU computes some behind a device too.
    bool leaves_device() const { return leaves_device_; }

private:
    struct Node {
        int op;
        const ggml_tensor * storage;  // itself, or what it is a view of
        std::vector<const ggml_tensor *> used;
        ggml_tensor * matrix;  // that it multiplies, or null
        const ggml_tensor *input, *experts;
        int64_t n_tokens, n_bytes;
    };

    const ggml_tensor * original(const ggml_tensor * tensor) const;
    size_t index_of(const ggml_tensor * tensor) const;
    size_t stream_of(size_t product) const;
    void find_kept(std::vector<Stage> & stages) const;

    std::vector<Node> nodes_;
    std::optional<size_t> on_device_;  // the first there
    bool leaves_device_ = false;
    std::unordered_map<const ggml_tensor *, size_t> index_;
    std::unordered_map<std::string, const ggml_tensor *> by_name_;
};

}  // namespace pyquant::calibrate
