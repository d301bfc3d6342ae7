#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>

#include "bindings/arrays.h"
#include "bindings/register.h"
#include "kernels/block.h"
#include "kernels/count.h"
#include "kernels/kld.h"
#include "kernels/scheme.h"

namespace pyquant::bindings {

namespace py = pybind11;
using namespace kernels;

namespace {

// table: of Q4_T blocks.
Scheme make_scheme(Grid grid, Storage storage, const Array<int8_t> & value,
                   const std::optional<Array<int8_t>> & table) {
    if (value.ndim() != 1 || value.shape(0) != 256) {
        throw py::value_error("value: expected shape (256,)");
    }
    Scheme scheme{grid, storage, {}, {}};
    std::copy_n(value.data(), 256, scheme.value.begin());
    const int lowest = storage == Storage::q4_0 ? -8 : storage == Storage::q4_t ? 0 : -128;
    const int highest = storage == Storage::q4_0 ? 7 : storage == Storage::q4_t ? 15 : 127;
    for (const int8_t v : scheme.value) {
        if (v < lowest || v > highest) {
            throw py::value_error("value: blocks of this storage hold " + std::to_string(lowest) + ".." +
                                  std::to_string(highest));
        }
    }
    if (table) {
        copy_table(*table, scheme.table);
    } else if (storage == Storage::q4_t) {
        throw py::value_error("table: Q4_T needs one");
    }
    return scheme;
}

py::array_t<uint8_t> encode_array(const Scheme & scheme, const Array<float> & x) {
    if (x.size() % kBlock != 0) {
        throw py::value_error("x: expected a multiple of 32 weights");
    }
    const int64_t n_blocks = x.size() / kBlock;
    py::array_t<uint8_t> out(storage_bytes(scheme.storage, n_blocks));
    const float * in = x.data();
    uint8_t * blocks = out.mutable_data();
    int64_t n_encoded;
    {
        const py::gil_scoped_release release;
        n_encoded = encode(scheme, in, n_blocks, blocks);
    }
    if (n_encoded < n_blocks) {
        throw py::value_error("block " + std::to_string(n_encoded) + " has no fp16 scale");
    }
    return out;
}

py::array_t<float> decode_array(Storage storage, const Array<uint8_t> & blocks) {
    if (storage == Storage::q4_t) {
        throw py::value_error("storage: decode_table decodes Q4_T");
    }
    const int64_t n_blocks =
        storage == Storage::q4_0 ? whole_blocks<BlockQ4_0>(blocks) : whole_blocks<BlockQ8_0>(blocks);
    py::array_t<float> x(n_blocks * kBlock);
    const uint8_t * in = blocks.data();
    float * out = x.mutable_data();
    const py::gil_scoped_release release;
    decode(storage, in, n_blocks, out);
    return x;
}

py::tuple count_array(const Array<uint8_t> & blocks, int64_t n_per_row, bool nibbles, uint8_t zero_code) {
    const int64_t blocks_per_row = n_per_row / kBlock;
    const int64_t row_bytes = blocks_per_row * int64_t(nibbles ? sizeof(BlockQ4_0) : sizeof(BlockQ8_0));
    if (n_per_row <= 0 || n_per_row % kBlock != 0 || blocks.size() % row_bytes != 0) {
        throw py::value_error("blocks: expected whole rows of a multiple of 32 weights");
    }
    const int64_t n_rows = blocks.size() / row_bytes;
    const uint8_t * in = blocks.data();
    CodeCounts counts;
    {
        const py::gil_scoped_release release;
        CodeCounter(nibbles, zero_code).count(in, n_rows, blocks_per_row, counts);
    }
    return py::make_tuple(Array<uint64_t>(nibbles ? 16 : 256, counts.codes),
                          Array<uint64_t>(kRunBins, counts.runs));
}

void check_scored(const Array<float> & logits, const Array<int32_t> & targets) {
    if (logits.ndim() != 2 || targets.ndim() != 1 || targets.shape(0) != logits.shape(0)) {
        throw py::value_error("expected logits (n, vocabulary) and targets (n,)");
    }
    for (int64_t i = 0; i < targets.size(); ++i) {
        if (targets.at(i) < 0 || targets.at(i) >= logits.shape(1)) {
            throw py::value_error("targets: a token outside the vocabulary");
        }
    }
}

py::array_t<double> score_array(const Array<float> & logits, const Array<int32_t> & targets, int n_threads) {
    check_scored(logits, targets);
    const int64_t n_rows = logits.shape(0), n_vocab = logits.shape(1);
    py::array_t<double> nll(n_rows);
    const float * in = logits.data();
    const int32_t * tokens = targets.data();
    double * out = nll.mutable_data();
    const py::gil_scoped_release release;
    negative_log_likelihood(in, n_rows, n_vocab, tokens, out, std::max(1, n_threads));
    return nll;
}

py::tuple compare_arrays(const Array<float> & base, const Array<float> & logits,
                         const Array<int32_t> & targets, int n_threads) {
    check_scored(base, targets);
    check_scored(logits, targets);
    const int64_t n_rows = logits.shape(0), n_vocab = logits.shape(1);
    if (base.shape(1) != n_vocab) {
        throw py::value_error("base and logits: expected one vocabulary");
    }
    py::array_t<double> nll(n_rows), kld(n_rows), overlap(n_rows);
    py::array_t<bool> same_top(n_rows);
    const float *of_base = base.data(), *of_model = logits.data();
    const int32_t * tokens = targets.data();
    const Kld out{nll.mutable_data(), kld.mutable_data(),
                  reinterpret_cast<uint8_t *>(same_top.mutable_data()), overlap.mutable_data()};
    {
        const py::gil_scoped_release release;
        compare_logits(of_base, of_model, n_rows, n_vocab, tokens, out, std::max(1, n_threads));
    }
    return py::make_tuple(nll, kld, same_top, overlap);
}

}  // namespace

void register_kernels(py::module_ & module) {
    py::enum_<Grid>(module, "Grid").value("Q4_0", Grid::q4_0).value("Q8_0", Grid::q8_0);
    py::enum_<Storage>(module, "Storage")
        .value("Q4_0", Storage::q4_0)
        .value("Q8_0", Storage::q8_0)
        .value("Q4_T", Storage::q4_t);
    py::class_<Scheme>(module, "Scheme")
        .def(py::init(&make_scheme), py::arg("grid"), py::arg("storage"), py::arg("value"),
             py::arg("table") = py::none())
        .def_readonly("grid", &Scheme::grid)
        .def_readonly("storage", &Scheme::storage);

    module.def("encode", &encode_array, py::arg("scheme"), py::arg("x").noconvert());
    module.def("decode", &decode_array, py::arg("storage"), py::arg("blocks").noconvert());
    module.def("count", &count_array, py::arg("blocks").noconvert(), py::arg("n_per_row"), py::arg("nibbles"),
               py::arg("zero_code"));
    module.def("negative_log_likelihood", &score_array, py::arg("logits").noconvert(),
               py::arg("targets").noconvert(), py::arg("n_threads"));
    module.def("compare_logits", &compare_arrays, py::arg("base").noconvert(), py::arg("logits").noconvert(),
               py::arg("targets").noconvert(), py::arg("n_threads"));
}

}  // namespace pyquant::bindings
