#include <vector>

#include "bindings/arrays.h"
#include "generation/bindings/register_generation.h"
#include "generation/few/few_queries.h"
#include "kernels/half.h"

namespace pyquant::bindings {

namespace py = pybind11;
using namespace kernels;

namespace {

// queries: (n, size). keys, values: (n_cells, size) of the bits of F16. masks: (n, n_cells), or empty.
py::array_t<float> attend_few_array(const Array<float> & queries, const Array<uint16_t> & keys,
                                    const Array<uint16_t> & values, const Array<uint16_t> & masks,
                                    float scale) {
    if (queries.ndim() != 2 || keys.ndim() != 2 || values.ndim() != 2 || masks.ndim() != 2 ||
        keys.shape(1) != queries.shape(1) || values.shape(0) != keys.shape(0) ||
        values.shape(1) != keys.shape(1) || keys.shape(0) % kCellsAtOnce != 0) {
        throw py::value_error(
            "queries, keys, values: expected (n, size) and twice (n_cells, size), n_cells a "
            "multiple of " +
            std::to_string(kCellsAtOnce));
    }
    if (masks.size() > 0 && (masks.shape(0) != queries.shape(0) || masks.shape(1) != keys.shape(0))) {
        throw py::value_error("masks: expected (n, n_cells)");
    }
    const py::ssize_t n = queries.shape(0), size = queries.shape(1);
    if (few_queries(size) == 0) {
        throw py::value_error("this build has no path for heads of size " + std::to_string(size));
    }
    std::vector<float> x(size_t(queries.size()));
    for (size_t i = 0; i < x.size(); ++i) {
        x[i] = half_to_float(float_to_half(queries.data()[i]));
    }
    py::array_t<float> out({n, size});
    std::vector<Query> rows;
    for (py::ssize_t i = 0; i < n; ++i) {
        rows.push_back(
            {x.data() + i * size, masks.size() > 0 ? masks.data(i, 0) : nullptr, out.mutable_data(i, 0)});
    }
    const size_t cell_bytes = size_t(size) * sizeof(uint16_t);
    const Cells cells{reinterpret_cast<const char *>(keys.data()), cell_bytes,
                      reinterpret_cast<const char *>(values.data()), cell_bytes, keys.shape(0)};
    attend_few(cells, size, rows.data(), int(n), scale);
    return out;
}

}  // namespace

void register_few_queries(py::module_ & module) {
    module.def("few_queries", &few_queries, py::arg("size"));
    module.def("few_query_lanes", &few_query_lanes);
    module.def("attend_few", &attend_few_array, py::arg("queries").noconvert(), py::arg("keys").noconvert(),
               py::arg("values").noconvert(), py::arg("masks").noconvert(), py::arg("scale"));
}

}  // namespace pyquant::bindings
