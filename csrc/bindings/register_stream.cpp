#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <system_error>

#include "bindings/arrays.h"
#include "bindings/checked_type.h"
#include "bindings/progress.h"
#include "bindings/register.h"
#include "kernels/block.h"
#include "kernels/scheme.h"
#include "stream/codec.h"
#include "stream/compare.h"
#include "stream/file.h"
#include "stream/pass.h"

namespace pyquant::bindings {

namespace py = pybind11;
using namespace kernels;
using namespace stream;

namespace {

using Importance = std::optional<Array<float>>;

void check_rows(const Decoder & stored, int64_t n_rows, int64_t n_per_row) {
    if (n_rows < 0 || n_per_row < 1) {
        throw py::value_error("expected rows of weights");
    }
    if (n_per_row % stored.block_size() != 0) {
        throw py::value_error("n_per_row: expected a multiple of the block size");
    }
}

void check_countable(const Decoder & stored, int64_t n_per_row, bool nibbles) {
    const Storage storage = nibbles ? Storage::q4_0 : Storage::q8_0;
    if (n_per_row % kBlock != 0 ||
        stored.row_bytes(n_per_row) != storage_bytes(storage, n_per_row / kBlock)) {
        throw py::value_error("count: expected rows of blocks of nibbles or bytes, as nibbles says");
    }
}

// (n_rows, n_per_row) float32 to (n_rows, row_bytes) uint8.
py::array_t<uint8_t> encode_rows(const Encoder & encoder, const Array<float> & x,
                                 const Importance & importance) {
    if (x.ndim() != 2 || (importance && importance->size() != x.shape(1))) {
        throw py::value_error("expected x (n_rows, n_per_row), importance (n_per_row,)");
    }
    check_rows(encoder, x.shape(0), x.shape(1));
    py::array_t<uint8_t> rows({x.shape(0), py::ssize_t(encoder.row_bytes(x.shape(1)))});
    const float * weights = x.data();
    const float * w = importance ? importance->data() : nullptr;
    uint8_t * out = rows.mutable_data();
    const py::gil_scoped_release release;
    encoder.encode(weights, 0, x.shape(0), x.shape(1), w, out);
    return rows;
}

// Decodes stored rows to floats.
py::array_t<float> decode_rows(const Decoder & decoder, const Array<uint8_t> & rows, int64_t n_per_row) {
    if (n_per_row < 1 || rows.ndim() != 2) {
        throw py::value_error("rows: expected rows of bytes");
    }
    check_rows(decoder, rows.shape(0), n_per_row);
    if (rows.shape(1) != decoder.row_bytes(n_per_row)) {
        throw py::value_error("rows: expected another number of bytes");
    }
    py::array_t<float> x({rows.shape(0), py::ssize_t(n_per_row)});
    float * weights = x.mutable_data();
    const uint8_t * in = rows.data();
    const py::gil_scoped_release release;
    decoder.decode(in, rows.shape(0), n_per_row, weights);
    return x;
}

int64_t rows_per_expert(const Importance & importance, int64_t n_rows, int64_t n_per_row) {
    const int64_t n_experts = importance->size() / n_per_row;
    if (n_experts < 1 || importance->size() % n_per_row != 0 || n_rows % n_experts != 0) {
        throw py::value_error("importance: expected shape (n_experts, n_per_row)");
    }
    return n_rows / n_experts;
}

// weights: what is read instead of the file, stored as source says. copy: (n_rows, row_bytes) uint8.
PassResult run_pass(int in_file, int64_t in_offset, int64_t n_rows, int64_t n_per_row, const Decoder & source,
                    const Encoder * target, const Importance & importance,
                    const std::optional<Array<float>> & weights, int out_file, int64_t out_offset,
                    std::optional<Array<uint8_t>> copy, const Encoder * copy_as, bool measure, bool check,
                    bool count, bool nibbles, uint8_t zero_code, int n_threads, const Progress & progress) {
    const Decoder & result = target ? *target : source;
    check_rows(source, n_rows, n_per_row);
    check_rows(result, n_rows, n_per_row);
    if (count) {
        check_countable(result, n_per_row, nibbles);
    }
    if (weights && n_rows * source.row_bytes(n_per_row) != weights->nbytes()) {
        throw py::value_error("weights: expected shape (n_rows, n_per_row), and F32 as source");
    }
    if (copy && !(target && copy_as && copy->size() == n_rows * copy_as->row_bytes(n_per_row))) {
        throw py::value_error("copy: expected a target and rows of what copy_as makes");
    }
    Pass pass{};
    pass.in_file = in_file;
    pass.in_offset = in_offset;
    pass.in_memory = weights ? weights->data() : nullptr;
    pass.n_rows = n_rows;
    pass.n_per_row = n_per_row;
    pass.source = &source;
    pass.target = target;
    if (importance) {
        pass.importance = importance->data();
        pass.rows_per_expert = rows_per_expert(importance, n_rows, n_per_row);
    }
    pass.out_file = out_file;
    pass.out_offset = out_offset;
    pass.copy = copy ? copy->mutable_data() : nullptr;
    pass.copy_as = copy_as;
    pass.measure = measure;
    pass.check = check;
    pass.count = count;
    pass.nibbles = nibbles;
    pass.zero_code = zero_code;
    pass.n_threads = n_threads;
    const auto tick = tick_of(progress);
    const py::gil_scoped_release release;
    return run(pass, tick);
}

ComparisonResult compare_tensors(int base_file, int64_t base_offset, const Decoder & base, int file,
                                 int64_t offset, const Decoder & decoder, int64_t n_rows, int64_t n_per_row,
                                 const Importance & importance, bool count, bool nibbles, uint8_t zero_code,
                                 int n_threads, const Progress & progress) {
    check_rows(base, n_rows, n_per_row);
    check_rows(decoder, n_rows, n_per_row);
    if (count) {
        check_countable(decoder, n_per_row, nibbles);
    }
    Comparison comparison{};
    comparison.n_rows = n_rows;
    comparison.n_per_row = n_per_row;
    comparison.base = {base_file, base_offset, &base};
    comparison.other = {file, offset, &decoder};
    if (importance) {
        comparison.importance = importance->data();
        comparison.rows_per_expert = rows_per_expert(importance, n_rows, n_per_row);
    }
    comparison.count = count;
    comparison.nibbles = nibbles;
    comparison.zero_code = zero_code;
    comparison.n_threads = n_threads;
    const auto tick = tick_of(progress);
    const py::gil_scoped_release release;
    return compare(comparison, tick);
}

}  // namespace

void register_stream(py::module_ & module) {
    static py::handle weight_error =
        py::exception<BadWeight>(module, "WeightError", PyExc_ValueError).release();
    static py::handle read_error = py::exception<ReadError>(module, "ReadError", PyExc_OSError).release();
    static py::handle write_error = py::exception<WriteError>(module, "WriteError", PyExc_OSError).release();
    weight_error.attr("index") = -1;  // in the tensor
    weight_error.attr("value") = 0.0f;
    py::register_exception_translator([](std::exception_ptr raised) {
        const auto set_system_error = [](py::handle type, const std::system_error & error) {
            PyErr_SetObject(type.ptr(), py::make_tuple(error.code().value(), error.what()).ptr());
        };
        try {
            std::rethrow_exception(raised);
        } catch (const BadWeight & bad) {
            const py::object error = weight_error(bad.what());
            error.attr("index") = bad.index;
            error.attr("value") = bad.value;
            PyErr_SetObject(weight_error.ptr(), error.ptr());
        } catch (const ReadError & error) {
            set_system_error(read_error, error);
        } catch (const WriteError & error) {
            set_system_error(write_error, error);
        }
    });

    py::class_<Decoder>(module, "Decoder")
        .def("decode", &decode_rows, py::arg("rows").noconvert(), py::arg("n_per_row"));
    py::class_<Encoder, Decoder>(module, "Encoder")
        .def("encode", &encode_rows, py::arg("x").noconvert(),
             py::arg("importance").noconvert() = py::none());
    module.def("ggml_decoder", [](int type) { return ggml_decoder(checked_type(type)); }, py::arg("type"));
    module.def("ggml_encoder", [](int type) { return ggml_encoder(checked_type(type)); }, py::arg("type"));
    module.def(
        "number_decoder", [](int type) { return number_decoder(checked_type(type)); }, py::arg("type"));
    module.def("scheme_encoder", &scheme_encoder, py::arg("scheme"));
    module.def(
        "table_decoder",
        [](const Array<int8_t> & values) {
            Table table;
            copy_table(values, table);
            return table_decoder(table);
        },
        py::arg("table"));

    py::class_<PassResult>(module, "PassResult")
        .def_property_readonly("squared_error", [](const PassResult & r) { return r.error.squared_error; })
        .def_property_readonly("squared_weight", [](const PassResult & r) { return r.error.squared_weight; })
        .def_property_readonly("squared_value", [](const PassResult & r) { return r.error.squared_value; })
        .def_property_readonly("largest_error", [](const PassResult & r) { return r.error.largest; })
        .def_property_readonly("largest_error_at", [](const PassResult & r) { return r.error.largest_at; })
        .def_property_readonly("zeros", [](const PassResult & r) { return r.error.zeros; })
        .def_property_readonly(
            "codes", [](const PassResult & r) { return py::array_t<uint64_t>(256, r.counts.codes); })
        .def_property_readonly(
            "runs", [](const PassResult & r) { return py::array_t<uint64_t>(kRunBins, r.counts.runs); });

    py::class_<ComparisonResult, PassResult>(module, "ComparisonResult")
        .def_property_readonly("weighted_squared_error",
                               [](const ComparisonResult & r) { return r.weighted.squared_error; })
        .def_property_readonly("weighted_squared_weight",
                               [](const ComparisonResult & r) { return r.weighted.squared_weight; });

    module.def("run_pass", &run_pass, py::kw_only(), py::arg("in_file") = -1, py::arg("in_offset") = 0,
               py::arg("n_rows"), py::arg("n_per_row"), py::arg("source"), py::arg("target") = py::none(),
               py::arg("importance").noconvert() = py::none(), py::arg("weights").noconvert() = py::none(),
               py::arg("out_file") = -1, py::arg("out_offset") = 0, py::arg("copy").noconvert() = py::none(),
               py::arg("copy_as") = py::none(), py::arg("measure") = false, py::arg("check") = false,
               py::arg("count") = false, py::arg("nibbles") = false, py::arg("zero_code") = 0,
               py::arg("n_threads") = 1, py::arg("progress") = py::none());
    module.def("compare", &compare_tensors, py::kw_only(), py::arg("base_file"), py::arg("base_offset"),
               py::arg("base"), py::arg("file"), py::arg("offset"), py::arg("decoder"), py::arg("n_rows"),
               py::arg("n_per_row"), py::arg("importance").noconvert() = py::none(), py::arg("count") = false,
               py::arg("nibbles") = false, py::arg("zero_code") = 0, py::arg("n_threads") = 1,
               py::arg("progress") = py::none());
    module.def("reserve", &reserve, py::arg("file"), py::arg("size"));
}

}  // namespace pyquant::bindings
