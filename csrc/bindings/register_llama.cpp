// llama.cpp's own decision which tensor gets which type, the hook in its quantizer, and how all of
// this was built.
#include <dlfcn.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/log_capture.h"
#include "bindings/register.h"
#include "ggml-cpu.h"
#include "ggml/hook.h"
#include "kernels/scheme.h"
#include "llama-arch.h"
#include "llama-ext.h"
#include "llama-hparams.h"
#include "llama.h"

namespace pyquant::bindings {

namespace py = pybind11;

namespace {

struct Tensor {
    std::string name;
    std::vector<int64_t> shape;  // as GGML has it, the length of a row first
    int type;
};

struct ModelTraits {
    std::string architecture;
    uint32_t n_embd, n_ff, n_layer, n_head, n_head_kv, n_expert;
};

// The type of every tensor in a file of type ftype: what llama_model_quantize would choose.
// by_pattern: of each tensor whose name an expression finds, the type, as by --tensor-type.
std::vector<int> choose_types(const ModelTraits & traits, const std::vector<Tensor> & tensors, int ftype,
                              bool pure, bool has_importance,
                              const std::vector<std::pair<std::string, int>> & by_pattern) {
    if (llm_arch_from_string(traits.architecture) == LLM_ARCH_UNKNOWN) {
        throw py::value_error("unknown architecture '" + traits.architecture + "'");
    }
    if (traits.n_layer < 1 || traits.n_layer > LLAMA_MAX_LAYERS) {
        throw py::value_error("expected 1.." + std::to_string(LLAMA_MAX_LAYERS) + " layers, got " +
                              std::to_string(traits.n_layer));
    }
    const llama_quant_model_desc description{traits.architecture.c_str(),
                                             traits.n_embd,
                                             traits.n_ff,
                                             traits.n_layer,
                                             traits.n_head,
                                             traits.n_head_kv,
                                             traits.n_expert,
                                             0,
                                             0};
    const llama_model_imatrix_data no_entries{nullptr, nullptr, 0};
    llama_model_quantize_params params = llama_model_quantize_default_params();
    params.ftype = llama_ftype(ftype);
    params.pure = pure;
    params.imatrix = has_importance ? &no_entries : nullptr;
    std::vector<llama_model_tensor_override> overrides;
    for (const auto & [pattern, type] : by_pattern) {
        overrides.push_back({pattern.c_str(), ggml_type(type)});
    }
    overrides.push_back({nullptr, GGML_TYPE_COUNT});
    params.tt_overrides = overrides.data();

    const std::unique_ptr<ggml_context, decltype(&ggml_free)> context(
        ggml_init({ggml_tensor_overhead() * tensors.size(), nullptr, /*no_alloc=*/true}), ggml_free);
    std::vector<ggml_tensor *> pointers;
    for (const Tensor & tensor : tensors) {
        pointers.push_back(ggml_new_tensor(context.get(), ggml_type(tensor.type), int(tensor.shape.size()),
                                           tensor.shape.data()));
        ggml_set_name(pointers.back(), tensor.name.c_str());
    }
    std::vector<ggml_type> types(tensors.size());
    {
        const LogCapture quiet;  // a line for every tensor that falls back; the types say it too
        const std::unique_ptr<llama_model, decltype(&llama_model_free)> model(
            llama_quant_model_from_metadata(&description), llama_model_free);
        const std::unique_ptr<quantize_state_impl, decltype(&llama_quant_free)> state(
            llama_quant_init(model.get(), &params), llama_quant_free);
        llama_quant_compute_types(state.get(), params.ftype, pointers.data(), types.data(), types.size());
    }
    return {types.begin(), types.end()};
}

// Folder of the libllama that this module calls: the one that llama_cpp has to load too.
std::string library_folder() {
    Dl_info library;
    if (!dladdr(reinterpret_cast<void *>(&llama_model_quantize), &library)) {
        throw std::runtime_error("the loader does not know where libllama is");
    }
    return std::filesystem::absolute(library.dli_fname).parent_path().string();
}

py::dict build_info() {
    py::dict info;
    info["pyquant"] = PYQUANT_VERSION;
    info["llama_cpp_python"] = PYQUANT_LLAMA_CPP_PYTHON_VERSION;
    info["ggml"] = ggml_version();
    info["compiler"] = PYQUANT_COMPILER;
    info["build_type"] = PYQUANT_BUILD_TYPE;
    info["native"] = bool(PYQUANT_NATIVE);
    info["system"] = llama_print_system_info();
    info["library_folder"] = library_folder();
    return info;
}

}  // namespace

void register_llama(py::module_ & module) {
    py::class_<Tensor>(module, "PolicyTensor")
        .def(py::init([](std::string name, std::vector<int64_t> shape, int type) {
            return Tensor{std::move(name), std::move(shape), type};
        }));
    py::class_<ModelTraits>(module, "ModelTraits")
        .def(py::init([](std::string architecture, uint32_t n_embd, uint32_t n_ff, uint32_t n_layer,
                         uint32_t n_head, uint32_t n_head_kv, uint32_t n_expert) {
                 return ModelTraits{
                     std::move(architecture), n_embd, n_ff, n_layer, n_head, n_head_kv, n_expert};
             }),
             py::kw_only(), py::arg("architecture"), py::arg("n_embd"), py::arg("n_ff"), py::arg("n_layer"),
             py::arg("n_head"), py::arg("n_head_kv"), py::arg("n_expert"));
    module.def("choose_types", &choose_types, py::arg("traits"), py::arg("tensors"), py::arg("ftype"),
               py::kw_only(), py::arg("pure"), py::arg("has_importance"),
               py::arg("by_pattern") = std::vector<std::pair<std::string, int>>());
    module.def(
        "default_type", [](int ftype) { return int(llama_ftype_get_default_type(llama_ftype(ftype))); },
        py::arg("ftype"));
    module.def("set_hook", &in_ggml::set_hook, py::arg("scheme"));
    module.def("clear_hook", &in_ggml::clear_hook);
    module.def("build_info", &build_info);
}

}  // namespace pyquant::bindings
