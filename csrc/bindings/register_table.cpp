#include <vector>

#include "bindings/arrays.h"
#include "bindings/register.h"
#include "kernels/scheme.h"
#include "kernels/table_product.h"

namespace pyquant::bindings {

namespace py = pybind11;
using namespace kernels;

namespace {

py::array_t<float> decode_table_array(const Array<int8_t> & values, const Array<uint8_t> & blocks) {
    const int64_t n_blocks = whole_blocks<BlockQ4_0>(blocks);
    Table table;
    copy_table(values, table);
    py::array_t<float> x(n_blocks * kBlock);
    decode_table(table, reinterpret_cast<const BlockQ4_0 *>(blocks.data()), n_blocks, x.mutable_data());
    return x;
}

py::array_t<uint8_t> expand_array(const Array<int8_t> & values, Storage stock,
                                  const Array<uint8_t> & blocks) {
    const int64_t n_blocks = whole_blocks<BlockQ4_0>(blocks);
    Table table;
    copy_table(values, table);
    py::array_t<uint8_t> out(storage_bytes(stock, n_blocks));
    const auto * in = reinterpret_cast<const BlockQ4_0 *>(blocks.data());
    uint8_t * to = out.mutable_data();
    const py::gil_scoped_release release;
    expand(table, stock, in, n_blocks, to);
    return out;
}

// blocks: rows of Q4_T blocks. x: columns of Q8_0 blocks, as many to a column as to a row. Returns
// (n_columns, n_rows).
py::array_t<float> multiply_table(Path path, const Array<int8_t> & values, const Array<uint8_t> & blocks,
                                  const Array<uint8_t> & x, int64_t blocks_per_row) {
    const int64_t n_rows = whole_blocks<BlockQ4_0>(blocks) / std::max<int64_t>(1, blocks_per_row);
    const int64_t n_columns = whole_blocks<BlockQ8_0>(x) / std::max<int64_t>(1, blocks_per_row);
    if (blocks_per_row < 1 || n_rows * blocks_per_row * int64_t(sizeof(BlockQ4_0)) != blocks.size() ||
        n_columns * blocks_per_row * int64_t(sizeof(BlockQ8_0)) != x.size()) {
        throw py::value_error("blocks_per_row: expected whole rows and columns");
    }
    if (!has_path(path)) {
        throw py::value_error("path: this CPU does not have it");
    }
    Table table;
    copy_table(values, table);
    const auto * columns = reinterpret_cast<const BlockQ8_0 *>(x.data());
    std::vector<Activations> in(size_t(n_columns * blocks_per_row));
    for (int64_t c = 0; c < n_columns; ++c) {
        for (int64_t b = 0; b < blocks_per_row; ++b) {
            in[size_t(b * n_columns + c)] = activations(columns[c * blocks_per_row + b]);
        }
    }
    const auto * rows = reinterpret_cast<const BlockQ4_0 *>(blocks.data());
    std::vector<TableGroup> group(static_cast<size_t>(blocks_per_row));
    py::array_t<float> out({n_columns, n_rows});
    for (int64_t row = 0; row < n_rows; row += kGroup) {
        const int n = int(std::min<int64_t>(kGroup, n_rows - row));
        interleave(rows + row * blocks_per_row, n, blocks_per_row, group.data());
        for (int64_t first = 0; first < n_columns; first += kTile) {
            const int n_tile = int(std::min<int64_t>(kTile, n_columns - first));
            float products[kTile * kGroup];
            multiply(path)(group.data(), table, in.data() + first, n_columns, blocks_per_row, n_tile,
                           products);
            for (int c = 0; c < n_tile; ++c) {
                std::copy_n(products + c * kGroup, n, out.mutable_data(first + c, row));
            }
        }
    }
    return out;
}

}  // namespace

void register_table(py::module_ & module) {
    py::enum_<Path>(module, "Path")
        .value("PORTABLE", Path::portable)
        .value("AVX2", Path::avx2)
        .value("AVX512_VNNI", Path::avx512_vnni)
        .value("NEON_DOTPROD", Path::neon_dotprod);

    module.def("decode_table", &decode_table_array, py::arg("table"), py::arg("blocks").noconvert());
    module.def("expand", &expand_array, py::arg("table"), py::arg("stock"), py::arg("blocks").noconvert());
    module.def("has_path", &has_path, py::arg("path"));
    module.def("multiply_table", &multiply_table, py::arg("path"), py::arg("table"),
               py::arg("blocks").noconvert(), py::arg("x").noconvert(), py::arg("blocks_per_row"));
}

}  // namespace pyquant::bindings
