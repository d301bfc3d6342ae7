// Collecting what enters a model's matrices while llama.cpp runs it.
#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <memory>

#include "bindings/arrays.h"
#include "bindings/register.h"
#include "calibrate/bf16_inputs.h"
#include "calibrate/collector.h"
#include "calibrate/lockstep.h"
#include "calibrate/running_weights.h"
#include "ggml.h"

namespace pyquant::bindings {

namespace py = pybind11;
using namespace calibrate;

namespace {

// Goes on with what is in the file if it is of this key.
void start(Collector & collector, int64_t memory, int file, const std::string & key) {
    SpoolKey bytes;
    if (key.size() != bytes.size()) {
        throw py::value_error("key: expected a SHA-256");
    }
    std::copy(key.begin(), key.end(), bytes.begin());
    const py::gil_scoped_release release;
    collector.start(memory, Spool(file, collector.sizes(), bytes));
}

// (n,) float32: the sums of these rows alone, as they lie in memory. bf16: of the rows rounded.
py::array_t<float> sum_rows(const Array<float> & x, float weight, bool bf16, int n_threads) {
    if (x.ndim() != 2 || x.size() == 0) {
        throw py::value_error("x: expected rows");
    }
    if (bf16 && !Bf16Inputs::supported()) {
        throw py::value_error("bf16: this processor does not multiply it");
    }
    const Rows rows{x.data(), x.shape(0), x.shape(1)};
    const Layout layout{x.shape(1), true};
    py::array_t<float> sums(layout.size());
    float * data = sums.mutable_data();
    const py::gil_scoped_release release;
    std::fill_n(data, layout.size(), 0.0f);
    Bf16Inputs rounded;
    add_rows(layout, rows, weight, bf16 ? &rounded : nullptr, n_threads, data);
    return sums;
}

// (n,) float32: an input's sums in one group, as they lie in memory.
py::array_t<float> sums(const Collector & collector, const Input & input, int64_t group) {
    if (group < 0 || group >= input.n_groups) {
        throw py::index_error("group");
    }
    py::array_t<float> sums(collector.layout(input).size());
    float * data = sums.mutable_data();
    const py::gil_scoped_release release;
    collector.sums().read(input.first_record + group, data);
    return sums;
}

// (n, n_in) float32, or None: a view of llama.cpp's memory.
py::object view(const Rows * rows, int64_t n_in) {
    if (!rows) {
        return py::none();
    }
    const py::capsule not_ours(rows->data, [](void *) {});
    const auto float_size = py::ssize_t(sizeof(float));
    return py::array_t<float>({rows->n, n_in}, {rows->stride * float_size, float_size}, rows->data, not_ours);
}

// (n_rows, row_bytes) uint8, to be written to: the matrix of a model that llama.cpp holds.
py::array_t<uint8_t> view(ggml_tensor * matrix) {
    const py::capsule not_ours(matrix->data, [](void *) {});
    const auto row_bytes = py::ssize_t(ggml_row_size(matrix->type, matrix->ne[0]));
    return py::array_t<uint8_t>({py::ssize_t(ggml_nrows(matrix)), row_bytes}, {row_bytes, py::ssize_t(1)},
                                static_cast<uint8_t *>(matrix->data), not_ours);
}

// round: (name, original, changed, copy) writes into copy; what it is given is valid while it runs.
std::unique_ptr<Lockstep> make_lockstep(std::set<std::string> matrices, py::function round) {
    return std::make_unique<Lockstep>(
        std::move(matrices), [round](ggml_tensor * matrix, const Rows * original, const Rows * changed) {
            const py::gil_scoped_acquire acquire;
            round(matrix->name, view(original, matrix->ne[0]), view(changed, matrix->ne[0]), view(matrix));
        });
}

}  // namespace

void register_calibrate(py::module_ & module) {
    module.attr("PANEL") = kPanel;
    module.attr("HAS_BF16_PRODUCTS") = Bf16Inputs::supported();
    module.def("sum_rows", &sum_rows, py::arg("x").noconvert(), py::arg("weight"), py::kw_only(),
               py::arg("bf16"), py::arg("n_threads"));

    py::class_<Input>(module, "Input")
        .def_readonly("matrices", &Input::matrices)
        .def_readonly("n_in", &Input::n_in)
        .def_readonly("n_groups", &Input::n_groups)
        .def_readonly("routed", &Input::routed)
        .def_readonly("all_moments", &Input::all_moments);

    py::class_<Collector>(module, "Collector")
        .def(py::init<std::set<std::string>, bool, int>(), py::arg("wanted"), py::kw_only(),
             py::arg("with_output"), py::arg("n_threads"))
        .def_property_readonly("address",
                               [](const Collector & self) { return reinterpret_cast<uintptr_t>(&self); })
        .def_property_readonly_static(
            "callback", [](const py::object &) { return reinterpret_cast<uintptr_t>(&Collector::evaluate); })
        .def_property_readonly("inputs", &Collector::inputs)
        .def_property_readonly("sizes", &Collector::sizes)
        .def_property_readonly("batch", &Collector::batch)
        .def("start", &start, py::kw_only(), py::arg("memory"), py::arg("file"), py::arg("key"))
        .def("set_weight", &Collector::set_weight, py::arg("weight"))
        .def("checkpoint", &Collector::checkpoint, py::arg("batch"), py::call_guard<py::gil_scoped_release>())
        .def("rethrow", &Collector::rethrow)
        .def("sums", &sums, py::arg("input"), py::arg("group"))
        .def("count", [](const Collector & self, const Input & input, int64_t group) {
            return self.sums().count(input.first_record + group);
        });

    py::class_<RunningWeights>(module, "RunningWeights")
        .def(py::init<>())
        .def_property_readonly("address",
                               [](const RunningWeights & self) { return reinterpret_cast<uintptr_t>(&self); })
        .def_property_readonly_static("callback",
                                      [](const py::object &) {
                                          return reinterpret_cast<uintptr_t>(&RunningWeights::evaluate);
                                      })
        .def_property_readonly("tensors", [](const RunningWeights & self) {
            std::map<std::string, py::array_t<uint8_t>> views;
            for (const auto & [name, tensor] : self.tensors()) {
                views.emplace(name, view(tensor));
            }
            return views;
        });

    py::class_<Lockstep::Pass>(module, "LockstepPass")
        .def_property_readonly("address",
                               [](const Lockstep::Pass & self) { return reinterpret_cast<uintptr_t>(&self); })
        .def_property_readonly_static(
            "callback", [](const py::object &) { return reinterpret_cast<uintptr_t>(&Lockstep::evaluate); })
        .def("leave", [](Lockstep::Pass & self) { self.both->leave(self.side); });

    py::class_<Lockstep>(module, "Lockstep")
        .def(py::init(&make_lockstep), py::arg("matrices"), py::arg("round"))
        .def_property_readonly(
            "original", [](Lockstep & self) -> auto & { return self.pass(Lockstep::kOriginal); },
            py::return_value_policy::reference_internal)
        .def_property_readonly(
            "changed", [](Lockstep & self) -> auto & { return self.pass(Lockstep::kChanged); },
            py::return_value_policy::reference_internal)
        .def("rethrow", &Lockstep::rethrow);
}

}  // namespace pyquant::bindings
