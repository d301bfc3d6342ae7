#include "llama/type_policy.h"

#include "ggml.h"
#include "llama-ext.h"
#include "llama-model-loader.h"
#include "llama-model.h"
#include "llama/abort_guard.h"

namespace pyquant::in_llama {

TypePolicy::TypePolicy(const std::string & path) : model_(nullptr, llama_model_free) {
    const AbortGuard guard;  // hyperparameters that make no sense fail assertions
    std::vector<std::string> no_splits;
    llama_model_loader loader(nullptr, nullptr, nullptr, path, no_splits, nullptr, LLAMA_LOAD_MODE_NONE,
                              /*check_tensors=*/false, /*no_alloc=*/true, /*load_mtp=*/true, nullptr,
                              nullptr);
    file_type_ = int(loader.ftype);
    model_.reset(llama_model_create(loader, llama_model_default_params()));
    static_cast<llama_model_base &>(*model_).load_hparams(loader);
}

std::vector<int> TypePolicy::choose(const std::vector<PolicyTensor> & tensors,
                                    const PolicyRequest & request) const {
    const AbortGuard guard;
    const llama_model_imatrix_data no_entries{nullptr, nullptr, 0};
    llama_model_quantize_params params = llama_model_quantize_default_params();
    params.ftype = llama_ftype(request.file_type);
    params.pure = request.pure;
    params.only_copy = request.copy;
    params.imatrix = request.has_importance ? &no_entries : nullptr;
    std::vector<llama_model_tensor_override> overrides;
    for (const auto & [pattern, type] : request.by_pattern) {
        overrides.push_back({pattern.c_str(), ggml_type(type)});
    }
    overrides.push_back({nullptr, GGML_TYPE_COUNT});
    params.tt_overrides = overrides.data();

    const std::unique_ptr<ggml_context, decltype(&ggml_free)> context(
        ggml_init({ggml_tensor_overhead() * (tensors.size() + 1), nullptr, /*no_alloc=*/true}), ggml_free);
    std::vector<ggml_tensor *> pointers;
    for (const PolicyTensor & tensor : tensors) {
        pointers.push_back(ggml_new_tensor(context.get(), ggml_type(tensor.type), int(tensor.shape.size()),
                                           tensor.shape.data()));
        ggml_set_name(pointers.back(), tensor.name.c_str());
    }
    std::vector<ggml_type> types(tensors.size());
    const std::unique_ptr<quantize_state_impl, decltype(&llama_quant_free)> state(
        llama_quant_init(model_.get(), &params), llama_quant_free);
    llama_quant_compute_types(state.get(), params.ftype, pointers.data(), types.data(), types.size());
    return {types.begin(), types.end()};
}

}  // namespace pyquant::in_llama
