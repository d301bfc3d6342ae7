// llama.cpp's own decision which tensor gets which type: its reader of hyperparameters, then the rules of its
// quantizer. Nothing of either is repeated here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "llama.h"

namespace pyquant::in_llama {

struct PolicyTensor {
    std::string name;
    std::vector<int64_t> shape;  // as GGML has it, the length of a row first
    int type;
};

// What llama-quantize is asked for.
struct PolicyRequest {
    int file_type;
    bool pure;
    bool copy;  // COPY: every tensor keeps its type
    bool has_importance;
    // Types by expressions that find tensors' names, as by --tensor-type.
    std::vector<std::pair<std::string, int>> by_pattern;
};

class TypePolicy {
public:
    // path: a GGUF with the model's metadata and tensors; their data are not read. Throws std::runtime_error
    // where llama-quantize refuses the model.
    explicit TypePolicy(const std::string & path);

    // The file's type as llama.cpp reads it: what COPY writes.
    int file_type() const { return file_type_; }

    // The type of every tensor. tensors: in llama.cpp's order; types and shapes may be others than the
    // file's.
    std::vector<int> choose(const std::vector<PolicyTensor> & tensors, const PolicyRequest & request) const;

private:
    std::unique_ptr<llama_model, decltype(&llama_model_free)> model_;
    int file_type_;
};

}  // namespace pyquant::in_llama
