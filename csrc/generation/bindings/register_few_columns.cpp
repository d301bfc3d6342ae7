#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "generation/bindings/register_generation.h"
#include "generation/few/few_columns.h"

namespace pyquant::bindings {

namespace py = pybind11;
using namespace kernels;

namespace {

int64_t block_bytes(FewWeights type) {
    return type == FewWeights::q8_0 ? int64_t(sizeof(BlockQ8_0)) : kBlock * int64_t(sizeof(uint16_t));
}

// rows: (n_rows, n_blocks, bytes of a block). x: (n_columns, n_blocks, bytes of a block), of the same type.
// Returns (n_columns, n_rows).
py::array_t<float> multiply_few_array(FewWeights type, const Array<uint8_t> & rows,
                                      const Array<uint8_t> & x) {
    if (few_lanes(type) == 0) {
        throw py::value_error("this build has no path for few columns");
    }
    if (rows.ndim() != 3 || x.ndim() != 3 || rows.shape(1) != x.shape(1) ||
        rows.shape(2) != block_bytes(type) || x.shape(2) != block_bytes(type)) {
        throw py::value_error("rows, x: expected (n, n_blocks, bytes of a block), of as many blocks");
    }
    const int64_t n = rows.shape(1) * kBlock;
    if (n % few_step(type) != 0 || x.shape(0) < 1 || x.shape(0) > kFewColumns) {
        throw py::value_error("x: expected 1 to " + std::to_string(kFewColumns) +
                              " columns of a multiple of " + std::to_string(few_step(type)));
    }
    const size_t column_bytes = prepared_bytes(type, n);
    std::vector<char> columns(size_t(x.shape(0)) * column_bytes);
    for (py::ssize_t c = 0; c < x.shape(0); ++c) {
        prepare(type, x.data(c, 0, 0), 0, n, columns.data() + size_t(c) * column_bytes);
    }
    py::array_t<float> y({x.shape(0), rows.shape(0)});
    multiply_few(type, rows.data(), size_t(rows.shape(1) * rows.shape(2)), rows.shape(0), n, columns.data(),
                 int(x.shape(0)), y.mutable_data(), rows.shape(0));
    return y;
}

}  // namespace

void register_few_columns(py::module_ & module) {
    py::enum_<FewWeights>(module, "FewWeights")
        .value("F16", FewWeights::f16)
        .value("BF16", FewWeights::bf16)
        .value("Q8_0", FewWeights::q8_0);

    module.def("few_lanes", &few_lanes, py::arg("type"));
    module.def("few_pairs", &few_pairs, py::arg("type"));
    module.def("multiply_few", &multiply_few_array, py::arg("type"), py::arg("rows").noconvert(),
               py::arg("x").noconvert());
}

}  // namespace pyquant::bindings
