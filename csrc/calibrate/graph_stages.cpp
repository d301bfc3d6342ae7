#include "calibrate/graph_stages.h"

#include <algorithm>

#include "calibrate/host_values.h"
#include "calibrate/nodes.h"
#include "ggml.h"

namespace pyquant::calibrate {
namespace {

const ggml_tensor * storage_of(const ggml_tensor * tensor) {
    return tensor->view_src ? tensor->view_src : tensor;
}

bool only_views(int op) {
    return op == GGML_OP_VIEW || op == GGML_OP_RESHAPE || op == GGML_OP_PERMUTE || op == GGML_OP_TRANSPOSE ||
           op == GGML_OP_NONE;
}

}  // namespace

void GraphStages::add(const ggml_tensor * node) {
    Node added{node->op, storage_of(node), {}, nullptr, nullptr, nullptr, 0, int64_t(ggml_nbytes(node))};
    for (const ggml_tensor * source : node->src) {
        if (source) {
            added.used.push_back(storage_of(original(source)));
        }
    }
    if (node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_MUL_MAT_ID) {
        added.matrix = node->src[0];
        added.input = original(node->src[1]);
        added.experts = node->op == GGML_OP_MUL_MAT_ID ? original(node->src[2]) : nullptr;
        added.n_tokens = added.experts ? added.input->ne[2] : ggml_nrows(added.input);
    }
    if (!only_views(node->op) && !is_on_host(node)) {
        on_device_ = on_device_.value_or(nodes_.size());
    } else if (!only_views(node->op) && on_device_) {
        leaves_device_ = true;
    }
    index_[node] = nodes_.size();
    by_name_[node->name] = node;
    nodes_.push_back(std::move(added));
}

// Itself, or the node that it is a copy of.
const ggml_tensor * GraphStages::original(const ggml_tensor * tensor) const {
    const std::string name = copied_name(tensor);
    const auto found = name.empty() ? by_name_.end() : by_name_.find(name);
    return found == by_name_.end() ? tensor : found->second;
}

size_t GraphStages::index_of(const ggml_tensor * tensor) const {
    const auto known = index_.find(tensor);
    return known == index_.end() ? Stage::kNone : known->second;
}

std::vector<Stage> GraphStages::stages(const std::set<std::string> & matrices) const {
    std::vector<Stage> stages;
    std::set<std::string> left = matrices;
    for (size_t i = 0; i < nodes_.size(); ++i) {
        const Node & node = nodes_[i];
        if (!node.matrix || left.erase(node.matrix->name) == 0) {
            continue;
        }
        const size_t input = index_of(node.input), experts = index_of(node.experts);
        const auto shares = [&](const Stage & stage) {
            return input != Stage::kNone && stage.input == input && stage.experts == experts;
        };
        const auto shared = std::find_if(stages.begin(), stages.end(), shares);
        if (shared != stages.end()) {
            shared->matrices.push_back(node.matrix);
        } else {
            stages.push_back({{node.matrix}, i, input, experts, Stage::kNone, node.n_tokens, {}, 0, true});
        }
    }
    for (Stage & stage : stages) {
        if (stage.matrices.size() == 1 && stage.experts == Stage::kNone) {
            stage.stream = stream_of(stage.cut);
        }
    }
    find_kept(stages);
    return stages;
}

size_t GraphStages::stream_of(size_t product) const {
    const size_t cut = product;
    for (size_t i = cut + 1; i < nodes_.size(); ++i) {
        const Node & node = nodes_[i];
        const auto use = std::find(node.used.begin(), node.used.end(), nodes_[product].storage);
        if (use == node.used.end() || only_views(node.op)) {
            continue;
        }
        if (node.op != GGML_OP_ADD || node.used.size() != 2) {
            return Stage::kNone;
        }
        const size_t other = index_of(node.used[use == node.used.begin() ? 1 : 0]);
        if (other != Stage::kNone) {
            return other < cut && nodes_[other].n_bytes == node.n_bytes ? other : Stage::kNone;
        }
        product = i;  // a bias was added
    }
    return Stage::kNone;
}

void GraphStages::find_kept(std::vector<Stage> & stages) const {
    std::unordered_map<const ggml_tensor *, size_t> last_use, first_change;
    for (size_t i = 0; i < nodes_.size(); ++i) {
        const Node & node = nodes_[i];
        last_use[node.storage] = i;
        for (const ggml_tensor * used : node.used) {
            last_use[used] = i;
        }
        if (!index_.count(node.storage) && !only_views(node.op)) {
            first_change.emplace(node.storage, i);
        }
    }
    for (Stage & stage : stages) {
        for (size_t i = 0; i < stage.cut; ++i) {
            const auto place = index_.find(nodes_[i].storage);
            if (place != index_.end() && place->second == i && last_use[nodes_[i].storage] >= stage.cut) {
                stage.kept.push_back(i);
                stage.n_bytes += nodes_[i].n_bytes;
            }
        }
        for (const auto & [cache, changed] : first_change) {
            stage.resumes = stage.resumes && !(changed < stage.cut && last_use[cache] >= stage.cut);
        }
    }
}

}  // namespace pyquant::calibrate
