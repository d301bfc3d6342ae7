// Collecting what enters a model's matrices while llama.cpp runs it.
#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/register.h"
#include "calibrate/bf16_pass.h"
#include "calibrate/bf16_strips.h"
#include "calibrate/collector.h"
#include "calibrate/least_squares.h"
#include "calibrate/residual_stream.h"
#include "calibrate/running_weights.h"
#include "calibrate/staged_pass.h"
#include "calibrate/token_products.h"
#include "ggml.h"
#include "kernels/bf16_tile.h"

namespace pyquant::bindings {

namespace py = pybind11;
using namespace calibrate;

namespace {

// Goes on with what is in the file if it is of this key; returns whether it is.
bool start(Collector & collector, int64_t memory, int file, const std::string & key) {
    SpoolKey bytes;
    if (key.size() != bytes.size()) {
        throw py::value_error("key: expected a SHA-256");
    }
    std::copy(key.begin(), key.end(), bytes.begin());
    const py::gil_scoped_release release;
    Spool spool(file, collector.sizes(), bytes);
    const bool goes_on = spool.goes_on();
    collector.start(memory, std::move(spool));
    return goes_on;
}

Rows rows_of(const Array<float> & x) {
    return {x.data(), x.shape(0), x.shape(1)};
}

// (n,) float32: the sums of these rows alone, as they lie in memory. bf16: of the rows rounded.
py::array_t<float> sum_rows(const Array<float> & x, float weight, bool bf16, int n_threads) {
    if (x.ndim() != 2 || x.size() == 0) {
        throw py::value_error("x: expected rows");
    }
    if (bf16 && !Bf16Strips::supported()) {
        throw py::value_error("bf16: this CPU does not multiply it");
    }
    const Rows rows = rows_of(x);
    const Layout layout{x.shape(1), true};
    py::array_t<float> sums(layout.size());
    float * data = sums.mutable_data();
    const py::gil_scoped_release release;
    std::fill_n(data, layout.size(), 0.0f);
    Bf16Strips rounded;
    add_rows(layout, rows, weight, bf16 ? &rounded : nullptr, n_threads, data);
    return sums;
}

void require_bf16() {
    if (!Bf16Strips::supported()) {
        throw py::value_error("this CPU does not multiply BF16");
    }
}

bool has_shape(const py::array_t<float> & sums, py::ssize_t n_rows, py::ssize_t n_columns) {
    return sums.ndim() == 2 && sums.shape(0) == n_rows && sums.shape(1) == n_columns &&
           (sums.flags() & py::array::c_style) != 0;
}

void add_products(const Array<float> & y, const Array<float> & z, py::array_t<float> & hessian,
                  py::array_t<float> & moved, int n_threads) {
    if (y.ndim() != 2 || z.ndim() != 2 || y.shape(0) != z.shape(0)) {
        throw py::value_error("y, z: expected rows, as many of both");
    }
    if (!has_shape(hessian, y.shape(1), y.shape(1)) || !has_shape(moved, z.shape(1), y.shape(1))) {
        throw py::value_error("hessian: expected shape (n_y, n_y); moved: (n_z, n_y)");
    }
    require_bf16();
    float *to_hessian = hessian.mutable_data(), *to_moved = moved.mutable_data();
    const Rows of_y = rows_of(y), of_z = rows_of(z);
    const int64_t n_y = y.shape(1), n_z = z.shape(1);
    const py::gil_scoped_release release;
    add_token_products(of_y, n_y, of_z, n_z, n_threads, to_hessian, to_moved);
}

void solve(py::array_t<float> & hessian, py::array_t<float> & moved, float dampening, int n_threads) {
    if (hessian.ndim() != 2 || moved.ndim() != 2 || hessian.size() == 0 ||
        !has_shape(hessian, hessian.shape(0), hessian.shape(0)) ||
        !has_shape(moved, moved.shape(0), hessian.shape(0))) {
        throw py::value_error("hessian: expected shape (n, n); moved: (n_moved, n)");
    }
    float *of_hessian = hessian.mutable_data(), *of_moved = moved.mutable_data();
    const int64_t n = hessian.shape(0), n_moved = moved.shape(0);
    const py::gil_scoped_release release;
    solve_damped(of_hessian, n, dampening, of_moved, n_moved, n_threads);
}

constexpr const char * kTypes[] = {"float32", "float16", "uint16"};  // by kernels::Number

// Rows of float32, of float16, or of BF16 in uint16.
Numbers numbers_of(const py::array & w) {
    const std::string type = py::str(w.dtype().attr("name"));
    const bool contiguous = (w.flags() & py::array::c_style) != 0;
    const auto known = std::find(std::begin(kTypes), std::end(kTypes), type);
    if (w.ndim() != 2 || !contiguous || known == std::end(kTypes) || w.dtype().byteorder() == '>') {
        throw py::value_error("w: expected rows of float32, of float16, or of BF16 in uint16");
    }
    return {static_cast<const char *>(w.data()), w.shape(0), size_t(w.strides(0)),
            kernels::Number(known - std::begin(kTypes))};
}

// (n_x, n_w) float32, of w (n_w, n) or, by_columns, (n, n_w).
template <bool by_columns>
py::array_t<float> multiply(const Array<float> & x, const py::array & w, int n_threads) {
    const Numbers of_w = numbers_of(w);
    if (x.ndim() != 2 || x.shape(1) != w.shape(by_columns ? 0 : 1)) {
        throw py::value_error(by_columns ? "x: expected rows as wide as w has rows"
                                         : "x, w: expected rows of one width");
    }
    require_bf16();
    py::array_t<float> out({x.shape(0), w.shape(by_columns ? 1 : 0)});
    float * data = out.mutable_data();
    const Rows of_x = rows_of(x);
    const int64_t width = w.shape(1);
    const py::gil_scoped_release release;
    (by_columns ? multiply_columns : multiply_rows)(of_x, of_w, width, n_threads, data);
    return out;
}

// (n,) float32: the first n of an input's sums in one group, as they lie in memory.
py::array_t<float> sums(const Collector & collector, const Input & input, int64_t group, int64_t n) {
    if (group < 0 || group >= input.n_groups) {
        throw py::index_error("group");
    }
    py::array_t<float> sums(n);
    float * data = sums.mutable_data();
    const py::gil_scoped_release release;
    collector.sums().read(input.first_record + group, n, data);
    return sums;
}

template <typename T>
py::array_t<T> view(const void * values, std::vector<py::ssize_t> shape, std::vector<py::ssize_t> strides) {
    const py::capsule not_ours(values, [](void *) {});
    return py::array_t<T>(std::move(shape), std::move(strides), static_cast<const T *>(values), not_ours);
}

// (n_tokens, n) float32, or None where tokens cannot be told apart. A view of llama.cpp's memory, or of a
// copy.
py::object tokens_of(const StagedPass::Seen & seen) {
    const ggml_tensor * x = seen.tensor;
    if (!x || x->type != GGML_TYPE_F32 || x->nb[0] != sizeof(float)) {
        return py::none();
    }
    const std::vector<py::ssize_t> ne(x->ne, x->ne + 4), nb(x->nb, x->nb + 4);
    // Recurrent models keep their sequences apart: their tokens too are rows at even distances.
    const bool even = (ne[2] == 1 || nb[2] == ne[1] * nb[1]) && (ne[3] == 1 || nb[3] == ne[2] * nb[2]);
    return even ? py::object(view<float>(seen.values, {ne[1] * ne[2] * ne[3], ne[0]}, {nb[1], nb[0]}))
                : py::none();
}

// Gives inputs as tokens_of does; of tokens that are sent to experts (n_tokens, n_used or 1, n_in).
py::object inputs(StagedPass & pass) {
    const auto seen = pass.input();
    const ggml_tensor * x = seen.tensor;
    if (!pass.experts().tensor || !x || x->type != GGML_TYPE_F32 || x->nb[0] != sizeof(float)) {
        return tokens_of(seen);
    }
    const std::vector<py::ssize_t> ne(x->ne, x->ne + 4), nb(x->nb, x->nb + 4);
    return view<float>(seen.values, {ne[2], ne[1], ne[0]}, {nb[2], nb[1], nb[0]});
}

// (n_tokens, n_used) int32: the experts that tokens are sent to, or None. A view as of tokens_of.
py::object experts(StagedPass & pass) {
    const auto [ids, values] = pass.experts();
    if (!ids) {
        return py::none();
    }
    return view<int32_t>(values, {py::ssize_t(ids->ne[1]), py::ssize_t(ids->ne[0])},
                         {py::ssize_t(ids->nb[1]), py::ssize_t(ids->nb[0])});
}

// (n_rows, row_bytes) uint8, to be written to: a matrix of a model that llama.cpp holds.
py::array_t<uint8_t> stored_rows(const ggml_tensor * matrix, const void * values) {
    const auto row_bytes = py::ssize_t(ggml_row_size(matrix->type, matrix->ne[0]));
    return view<uint8_t>(values, {py::ssize_t(ggml_nrows(matrix)), row_bytes}, {row_bytes, 1});
}

std::vector<std::string> names_of(const Stage & stage) {
    std::vector<std::string> names;
    for (const ggml_tensor * matrix : stage.matrices) {
        names.emplace_back(matrix->name);
    }
    return names;
}

// What sees the nodes of a graph: with its address and that of its callback, as llama.cpp takes them.
template <class T>
py::class_<T> observer(py::module_ & module, const char * name) {
    return py::class_<T>(module, name)
        .def_property_readonly("address", [](const T & self) { return reinterpret_cast<uintptr_t>(&self); })
        .def_property_readonly_static(
            "callback", [](const py::object &) { return reinterpret_cast<uintptr_t>(&T::evaluate); });
}

}  // namespace

void register_calibrate(py::module_ & module) {
    module.attr("PANEL") = kPanel;
    module.attr("HAS_BF16_PRODUCTS") = Bf16Strips::supported();
    module.attr("HAS_AMX_PRODUCTS") = kernels::has_amx_tile();
    module.def("sum_rows", &sum_rows, py::arg("x").noconvert(), py::arg("weight"), py::kw_only(),
               py::arg("bf16"), py::arg("n_threads"));
    module.def("add_token_products", &add_products, py::arg("y").noconvert(), py::arg("z").noconvert(),
               py::arg("hessian").noconvert(), py::arg("moved").noconvert(), py::kw_only(),
               py::arg("n_threads"));
    module.def("solve_damped", &solve, py::arg("hessian").noconvert(), py::arg("moved").noconvert(),
               py::arg("dampening"), py::kw_only(), py::arg("n_threads"));
    module.def("multiply_rows", &multiply<false>, py::arg("x").noconvert(), py::arg("w"), py::kw_only(),
               py::arg("n_threads"));
    module.def("multiply_columns", &multiply<true>, py::arg("x").noconvert(), py::arg("w"), py::kw_only(),
               py::arg("n_threads"));

    py::class_<Input>(module, "Input")
        .def_readonly("matrices", &Input::matrices)
        .def_readonly("n_in", &Input::n_in)
        .def_readonly("n_groups", &Input::n_groups)
        .def_readonly("routed", &Input::routed)
        .def_readonly("all_hessians", &Input::all_hessians)
        .def_readonly("first_tokens", &Input::first_tokens);

    observer<Collector>(module, "Collector")
        .def(py::init<std::set<std::string>, bool, int, bool, bool>(), py::arg("wanted"), py::kw_only(),
             py::arg("with_output"), py::arg("n_threads"), py::arg("on_device"), py::arg("allows_bf16"))
        .def_property_readonly("inputs", &Collector::inputs)
        .def_property_readonly("sizes", &Collector::sizes)
        .def_property_readonly("batch", &Collector::batch)
        .def("start", &start, py::kw_only(), py::arg("memory"), py::arg("file"), py::arg("key"))
        .def("set_pass", &Collector::set_pass, py::kw_only(), py::arg("weight"), py::arg("n_begun"))
        .def("checkpoint", &Collector::checkpoint, py::arg("batch"), py::call_guard<py::gil_scoped_release>())
        .def("fetch", &Collector::fetch, py::call_guard<py::gil_scoped_release>())
        .def_property_readonly("left_to_cpu", &Collector::left_to_cpu)
        .def("rethrow", &Collector::rethrow, py::call_guard<py::gil_scoped_release>())
        .def_property_readonly("waited",
                               [](const Collector & self) {
                                   const auto & waited = self.waited();
                                   return std::pair(waited.for_copies, waited.for_sums);
                               })
        .def(
            "sums",
            [](const Collector & self, const Input & input, int64_t group) {
                return sums(self, input, group, self.size(input));
            },
            py::arg("input"), py::arg("group"))
        .def(
            "squares",
            [](const Collector & self, const Input & input, int64_t group) {
                return sums(self, input, group, input.n_in);
            },
            py::arg("input"), py::arg("group"))
        .def("count", [](const Collector & self, const Input & input, int64_t group) {
            return self.sums().count(input.first_record + group);
        });

    observer<ResidualStream>(module, "ResidualStream")
        .def(py::init<>())
        .def_property_readonly("logarithms", [](const ResidualStream & self) {
            std::map<std::string, double> means;
            for (const auto & [name, size] : self.sizes()) {
                if (size.n_tokens > 0) {
                    means.emplace(name, size.log_sum / double(size.n_tokens));
                }
            }
            return means;
        });

    observer<RunningWeights>(module, "RunningWeights")
        .def(py::init<>())
        .def_property_readonly("names",
                               [](const RunningWeights & self) {
                                   std::vector<std::string> names;
                                   for (const auto & [name, tensor] : self.tensors()) {
                                       names.push_back(name);
                                   }
                                   return names;
                               })
        .def("copy",
             [](RunningWeights & self, const std::string & name) {
                 return stored_rows(self.tensors().at(name), self.copy(name));
             })
        .def("restore", &RunningWeights::restore);

    observer<Bf16Pass>(module, "Bf16Pass").def(py::init<>());

    py::class_<Stage>(module, "Stage")
        .def_property_readonly("matrices", &names_of)
        .def_property_readonly("n_in", [](const Stage & self) { return self.matrices.at(0)->ne[0]; })
        .def_property_readonly("routed", [](const Stage & self) { return self.experts != Stage::kNone; })
        .def_property_readonly("in_stream", [](const Stage & self) { return self.stream != Stage::kNone; })
        .def_readonly("n_tokens", &Stage::n_tokens)
        .def_readonly("n_bytes", &Stage::n_bytes)
        .def_readonly("resumes", &Stage::resumes);

    py::class_<PassStates>(module, "PassStates")
        .def(py::init<int64_t, int64_t, int64_t, int>(), py::arg("n_states"), py::kw_only(),
             py::arg("n_bytes"), py::arg("memory"), py::arg("file"));

    observer<StagedPass>(module, "StagedPass")
        .def(py::init<std::set<std::string>, bool>(), py::arg("matrices"), py::kw_only(),
             py::arg("allows_bf16"))
        .def("learn", &StagedPass::learn)
        .def("end_learning", &StagedPass::end_learning)
        .def_property_readonly("stages", &StagedPass::stages)
        .def("begin", &StagedPass::begin, py::arg("from_stage"), py::arg("to_stage"), py::arg("states"),
             py::arg("state"), py::keep_alive<1, 4>())
        .def("rethrow", &StagedPass::rethrow)
        .def("inputs", &inputs)
        .def("stream", [](StagedPass & self) { return tokens_of(self.stream()); })
        .def("experts", &experts)
        .def(
            "own",
            [](StagedPass & self, size_t stage, size_t i) {
                const auto own = self.own(stage, i);
                return stored_rows(own.matrix, own.values);
            },
            py::arg("stage"), py::arg("i"))
        .def("disown_before", &StagedPass::disown_before, py::arg("stage"));
}

}  // namespace pyquant::bindings
