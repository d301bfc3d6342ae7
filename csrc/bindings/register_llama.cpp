// llama.cpp's own decision which tensor gets which type, the hook in its quantizer, and how all of this was
// built.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "bindings/log_capture.h"
#include "bindings/register.h"
#include "ggml-cpu.h"
#include "ggml/hook.h"
#include "kernels/bf16_tile.h"
#include "kernels/scheme.h"
#include "llama-ext.h"
#include "llama.h"
#include "llama/abort_guard.h"
#include "llama/type_policy.h"

namespace pyquant::bindings {

namespace py = pybind11;

namespace {

struct Guard {
    explicit Guard(const py::bytes & doing) : doing(doing) {}

    const std::string doing;
    std::optional<in_llama::AbortGuard> entered;
};

// Says why, as commands say errors, and ends the process. What Python still holds for standard output is
// written first: those who compute have released the interpreter.
void say_and_end(const std::string & text) {
    const py::gil_scoped_acquire holding;
    try {
        py::module_::import("sys").attr("stdout").attr("flush")();
    } catch (const py::error_already_set &) {  // nobody reads it
    }
    std::fprintf(stderr, "pyquant: %s\n", text.c_str());
    _exit(1);
}

// A name need not be UTF-8.
in_llama::TypePolicy read_policy(const py::bytes & path) {
    const LogCapture quiet;
    return in_llama::TypePolicy(path);
}

std::vector<int> choose_types(const in_llama::TypePolicy & policy,
                              const std::vector<in_llama::PolicyTensor> & tensors, int ftype, bool pure,
                              bool copy, bool has_importance,
                              const std::vector<std::pair<std::string, int>> & by_pattern) {
    const LogCapture quiet;  // a line for every tensor that falls back; the types say it too
    return policy.choose(tensors, {ftype, pure, copy, has_importance, by_pattern});
}

// The names that an expression finds, as --tensor-type reads expressions: C++'s ECMAScript. Throws
// std::regex_error.
std::vector<std::string> find_names(const std::string & pattern, const std::vector<std::string> & names) {
    const std::regex compiled(pattern);
    std::vector<std::string> found;
    std::copy_if(names.begin(), names.end(), std::back_inserter(found),
                 [&](const std::string & name) { return std::regex_search(name, compiled); });
    return found;
}

// llama.cpp's functions whose failed assertions and exceptions, as of a device that is lost, would leave a C
// interface. What runs in this thread alone, as making a graph does, raises RuntimeError.
int decode(uintptr_t context, uintptr_t batch, const py::bytes & doing) {
    const in_llama::AbortGuard guard(doing);
    const py::gil_scoped_release compute;
    return llama_decode(reinterpret_cast<llama_context *>(context),
                        *reinterpret_cast<const llama_batch *>(batch));
}

void synchronize(uintptr_t context, const py::bytes & doing) {
    const in_llama::AbortGuard guard(doing);
    const py::gil_scoped_release compute;
    llama_synchronize(reinterpret_cast<llama_context *>(context));
}

void clear(uintptr_t context, const py::bytes & doing) {
    const in_llama::AbortGuard guard(doing);
    const py::gil_scoped_release compute;
    llama_memory_clear(llama_get_memory(reinterpret_cast<llama_context *>(context)), true);
}

// Forgets a sequence's tokens at positions from begin on, before end; false: it cannot.
bool forget(uintptr_t context, int sequence, int begin, int end, const py::bytes & doing) {
    const in_llama::AbortGuard guard(doing);
    return llama_memory_seq_rm(llama_get_memory(reinterpret_cast<llama_context *>(context)), sequence, begin,
                               end);
}

// Lets a sequence have another's tokens at positions from begin on, before end.
void share(uintptr_t context, int source, int target, int begin, int end, const py::bytes & doing) {
    const in_llama::AbortGuard guard(doing);
    llama_memory_seq_cp(llama_get_memory(reinterpret_cast<llama_context *>(context)), source, target, begin,
                        end);
}

// Lets a sequence be what it is in another context, by what that has computed; false: their shapes differ.
bool take(uintptr_t context, uintptr_t giver, int sequence, const py::bytes & doing) {
    const in_llama::AbortGuard guard(doing);
    const py::gil_scoped_release compute;
    auto * from = reinterpret_cast<llama_context *>(giver);
    std::vector<uint8_t> cells(llama_state_seq_get_size(from, sequence));
    llama_state_seq_get_data(from, cells.data(), cells.size(), sequence);
    return llama_state_seq_set_data(reinterpret_cast<llama_context *>(context), cells.data(), cells.size(),
                                    sequence) == cells.size();
}

py::dict build_info() {
    const LogCapture quiet;  // backends for GPUs list what they find
    py::dict info;
    info["pyquant"] = PYQUANT_VERSION;
    info["llama_cpp_python"] = PYQUANT_LLAMA_CPP_PYTHON_VERSION;
    info["ggml"] = ggml_version();
    info["compiler"] = PYQUANT_COMPILER;
    info["build_type"] = PYQUANT_BUILD_TYPE;
    info["variant"] = PYQUANT_VARIANT;
    info["gpu_backends"] = PYQUANT_GPU_BACKENDS;
    // llama.cpp is compiled without AMX (cmake/no_amx.cmake), pyquant's own products use it.
    info["system"] =
        llama_print_system_info() + std::string(kernels::has_amx_tile() ? "AMX_BF16 = 1 | " : "");
    return info;
}

bool is_gpu(ggml_backend_dev_t device) {
    const auto type = ggml_backend_dev_type(device);
    return type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU;
}

// The GPUs that a model's layers can be computed on.
std::vector<py::dict> devices() {
    const LogCapture quiet;
    std::vector<py::dict> all;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        const ggml_backend_dev_t device = ggml_backend_dev_get(i);
        if (!is_gpu(device)) {
            continue;
        }
        size_t free = 0, total = 0;
        ggml_backend_dev_memory(device, &free, &total);
        py::dict found;
        found["name"] = ggml_backend_dev_name(device);
        found["description"] = ggml_backend_dev_description(device);
        found["memory_bytes"] = total;
        found["free_bytes"] = free;
        all.push_back(found);
    }
    return all;
}

}  // namespace

void register_llama(py::module_ & module) {
    using in_llama::PolicyTensor;
    using in_llama::TypePolicy;
    py::class_<PolicyTensor>(module, "PolicyTensor")
        .def(py::init([](std::string name, std::vector<int64_t> shape, int type) {
            return PolicyTensor{std::move(name), std::move(shape), type};
        }));
    py::class_<TypePolicy>(module, "TypePolicy")
        .def(py::init(&read_policy), py::arg("path"))
        .def_property_readonly("file_type", &TypePolicy::file_type)
        .def("choose", &choose_types, py::arg("tensors"), py::arg("ftype"), py::kw_only(), py::arg("pure"),
             py::arg("copy"), py::arg("has_importance"), py::arg("by_pattern"));
    in_llama::set_say_and_end(say_and_end);
    // doing: as in C++, in the file system's encoding, as it names a file. `with AbortGuard(doing):` around
    // functions of llama.cpp that catch exceptions, and abort at what they assert.
    py::class_<Guard>(module, "AbortGuard")
        .def(py::init<const py::bytes &>(), py::arg("doing"))
        .def("__enter__", [](Guard & guard) { guard.entered.emplace(guard.doing); })
        .def("__exit__", [](Guard & guard, const py::object &, const py::object &, const py::object &) {
            guard.entered.reset();
        });
    module.def("decode", &decode, py::arg("context"), py::arg("batch"), py::arg("doing"));
    module.def("synchronize", &synchronize, py::arg("context"), py::arg("doing"));
    module.def("clear", &clear, py::arg("context"), py::arg("doing"));
    module.def("forget", &forget, py::arg("context"), py::arg("sequence"), py::arg("begin"), py::arg("end"),
               py::arg("doing"));
    module.def("share", &share, py::arg("context"), py::arg("source"), py::arg("target"), py::arg("begin"),
               py::arg("end"), py::arg("doing"));
    module.def("take", &take, py::arg("context"), py::arg("giver"), py::arg("sequence"), py::arg("doing"));
    module.def("find_names", &find_names, py::arg("pattern"), py::arg("names"));
    module.def(
        "default_type", [](int ftype) { return int(llama_ftype_get_default_type(llama_ftype(ftype))); },
        py::arg("ftype"));
    // Whether llama.cpp's quantizer makes files of a type.
    module.def(
        "is_made",
        [](int ftype) { return llama_ftype_get_default_type(llama_ftype(ftype)) != GGML_TYPE_COUNT; },
        py::arg("ftype"));
    module.def("set_hook", &in_ggml::set_hook, py::arg("scheme"));
    module.def("clear_hook", &in_ggml::clear_hook);
    module.def("build_info", &build_info);
    module.def("devices", &devices);
}

}  // namespace pyquant::bindings
