#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/checked_type.h"
#include "bindings/progress.h"
#include "bindings/register.h"
#include "gptq/encoders.h"
#include "gptq/factor.h"
#include "gptq/learn.h"
#include "gptq/row_feedback.h"

namespace pyquant::bindings {

namespace py = pybind11;
using namespace gptq;
using namespace kernels;
using namespace stream;

namespace {

// together: columns of a block, or columns that are rounded together, of a scale, and of a block.
using Columns = std::variant<int, std::tuple<int, int, int>>;

std::shared_ptr<const Factor> make_factor(const Array<float> & hessian, float dampening, Columns columns,
                                          int n_threads) {
    const auto * given = std::get_if<std::tuple<int, int, int>>(&columns);
    const Together together = given ? Together{std::get<0>(*given), std::get<1>(*given), std::get<2>(*given)}
                                    : Together{1, kSub, std::get<int>(columns)};
    if (together.group < 1 || together.scale < 1 || together.block < 1 ||
        together.scale % together.group != 0 || together.block % together.scale != 0) {
        throw py::value_error(
            "together: expected columns of a group and of a scale that divide those of a scale and a block");
    }
    if (hessian.ndim() != 2 || hessian.shape(0) != hessian.shape(1) || hessian.shape(0) % kSub != 0 ||
        hessian.shape(0) % together.block != 0) {
        throw py::value_error(
            "hessian: expected shape (n, n), n a multiple of 32 and of the columns that share a scale");
    }
    const int64_t n = hessian.shape(0);
    const float * data = hessian.data();
    const py::gil_scoped_release release;
    return std::make_shared<const Factor>(factorize(data, n, dampening, together, n_threads));
}

std::shared_ptr<const Factor> make_independent(const Array<float> & weights) {
    if (weights.ndim() != 1 || weights.shape(0) % kSub != 0) {
        throw py::value_error("weights: expected shape (n,), n a multiple of 32");
    }
    return std::make_shared<const Factor>(independent(weights.data(), weights.shape(0)));
}

template <class T>
py::array_t<T> read_only(py::array_t<T> array) {
    array.attr("setflags")(py::arg("write") = false);
    return array;
}

// (n, n) of an element's value, or nothing where no errors are passed on.
template <class Value>
std::optional<py::array_t<float>> square(const Factor & factor, const Value & value) {
    if (!factor.passes_on()) {
        return std::nullopt;
    }
    py::array_t<float> result({factor.n(), factor.n()});
    auto all = result.mutable_unchecked<2>();
    for (int64_t j = 0; j < factor.n(); ++j) {
        for (int64_t k = 0; k < factor.n(); ++k) {
            all(j, k) = value(j, k);
        }
    }
    return read_only(result);
}

// U, its diagonal included.
std::optional<py::array_t<float>> upper(const Factor & factor) {
    return square(factor, [&](int64_t j, int64_t k) {
        return j < k ? factor.panel(k / kSub)[j * kSub + k % kSub] : float(j == k);
    });
}

// H in the order of the columns, damped.
std::optional<py::array_t<float>> dampened_hessian(const Factor & factor) {
    return square(factor,
                  [&](int64_t j, int64_t k) { return factor.hessian_panel(k / kSub)[j * kSub + k % kSub]; });
}

// values: (n,) ascending, n <= 16; codes: (n,); table: (16,).
std::unique_ptr<Encoder> make_table_encoder(Storage storage, const Array<int8_t> & values,
                                            const Array<uint8_t> & codes, const Array<int8_t> & table,
                                            std::shared_ptr<Factor> factor) {
    if (values.ndim() != 1 || values.size() < 1 || values.size() > 16 || codes.size() != values.size() ||
        table.size() != 16) {
        throw py::value_error("expected up to 16 values, a code for each, and a table of 16");
    }
    Table whole;
    std::copy_n(table.data(), 16, whole);
    return gptq_table_encoder(storage, values.data(), codes.data(), int(values.size()), whole,
                              std::move(factor));
}

// stored: (n_rows, row_bytes) uint8; values: (n_rows, n_in) float32.
std::pair<py::array_t<uint8_t>, py::array_t<float>> round_with_rows(const Array<float> & weights,
                                                                    const Factor & rows,
                                                                    const Encoder & encoder, int64_t together,
                                                                    int n_threads) {
    if (weights.ndim() != 2 || weights.shape(1) % kSub != 0 || together < 1 || together % kSub != 0) {
        throw py::value_error("weights: expected rows of blocks of 32; together: a multiple of 32");
    }
    const py::ssize_t n_rows = weights.shape(0), n_in = weights.shape(1);
    const auto begin = rows.order.begin(), end = rows.order.end();
    if (!rows.passes_on() || (n_rows + kSub - 1) / kSub * kSub != rows.n() ||
        std::any_of(begin + n_rows, end, [&](int32_t row) { return row < n_rows; })) {
        throw py::value_error("rows: expected a factor of as many, filled up to a multiple of 32");
    }
    py::array_t<uint8_t> stored({n_rows, py::ssize_t(encoder.row_bytes(n_in))});
    py::array_t<float> values({n_rows, n_in});
    uint8_t * to_stored = stored.mutable_data();
    float * to_values = values.mutable_data();
    const float * data = weights.data();
    {
        const py::gil_scoped_release release;
        round_rows(data, n_rows, n_in, rows, together, encoder, n_threads, to_stored, to_values);
    }
    return {stored, values};
}

// (4096,): where weights lie in multiples of their scale; the tensor's place as run_pass takes it.
py::array_t<double> positions(int file, int64_t offset, int64_t n_rows, int64_t n_per_row,
                              const Decoder & source, const Array<float> & weights,
                              const Array<int8_t> & values, int n_threads, const Progress & progress) {
    if (n_per_row % kSub != 0 || weights.size() != n_per_row || values.size() != 16) {
        throw py::value_error("expected rows of blocks of 32, a weight for each column and 16 values");
    }
    LearnPass pass{file, offset, n_rows, n_per_row, &source, weights.data(), {}, n_threads};
    std::copy_n(values.data(), 16, pass.values);
    py::array_t<double> result(kBins);
    double * out = result.mutable_data();
    const auto tick = tick_of(progress);
    const py::gil_scoped_release release;
    const Positions found = find_positions(pass, tick);
    std::copy(found.begin(), found.end(), out);
    return result;
}

}  // namespace

void register_gptq(py::module_ & module) {
    py::class_<Factor, std::shared_ptr<Factor>>(module, "Factor")
        .def_property_readonly("mean_diagonal",
                               [](const Factor & factor) {
                                   return std::accumulate(factor.diagonal.begin(), factor.diagonal.end(),
                                                          0.0) /
                                          double(factor.n());
                               })
        .def_property_readonly("order",
                               [](const Factor & factor) {
                                   return read_only(py::array_t<int32_t>(factor.n(), factor.order.data()));
                               })
        .def_property_readonly("diagonal",
                               [](const Factor & factor) {
                                   return read_only(py::array_t<float>(factor.n(), factor.diagonal.data()));
                               })
        .def_property_readonly("upper", &upper)
        .def_property_readonly("hessian", &dampened_hessian);
    module.def("factorize", &make_factor, py::arg("hessian").noconvert(), py::kw_only(), py::arg("dampening"),
               py::arg("together"), py::arg("n_threads") = 1);
    module.def("independent", &make_independent, py::arg("weights").noconvert());
    module.def("gptq_types", [] {
        const std::vector<ggml_type> types = gptq_types();
        return std::vector<int>(types.begin(), types.end());
    });
    module.def(
        "gptq_encoder",
        [](int type, std::shared_ptr<Factor> factor) {
            return gptq_encoder(checked_type(type), std::move(factor));
        },
        py::arg("type"), py::arg("factor").none(false));
    module.def(
        "lattice_encoder",
        [](int type, int64_t n_per_row, int bits) {
            if (n_per_row < 0 || n_per_row % kSub != 0 || bits < 1 || bits > 24) {
                throw py::value_error("expected n_per_row a multiple of 32, and 1 to 24 bits");
            }
            return lattice_encoder(checked_type(type), n_per_row, bits);
        },
        py::arg("type"), py::arg("n_per_row"), py::arg("bits"));
    module.def("gptq_table_encoder", &make_table_encoder, py::arg("storage"), py::arg("values"),
               py::arg("codes"), py::arg("table"), py::arg("factor").none(false));
    module.def(
        "ecsq_encoder",
        [](const std::vector<float> & steps, std::shared_ptr<Factor> factor) {
            std::vector<uint16_t> halves(steps.size());
            std::transform(steps.begin(), steps.end(), halves.begin(), float_to_half);
            const auto bad = [](uint16_t half) { return half == 0 || half >= 0x7c00; };
            if (halves.empty() || std::any_of(halves.begin(), halves.end(), bad)) {
                throw py::value_error("steps: expected positive numbers of fp16");
            }
            return ecsq_encoder(halves, std::move(factor));
        },
        py::arg("steps"), py::arg("factor").none(false));
    module.def("round_rows", &round_with_rows, py::arg("weights").noconvert(), py::kw_only(), py::arg("rows"),
               py::arg("encoder"), py::arg("together"), py::arg("n_threads"));
    module.def("find_positions", &positions, py::kw_only(), py::arg("in_file"), py::arg("in_offset"),
               py::arg("n_rows"), py::arg("n_per_row"), py::arg("source"), py::arg("weights").noconvert(),
               py::arg("values"), py::arg("n_threads") = 1, py::arg("progress") = py::none());
    module.attr("BINS_PER_LEVEL") = kBinsPerLevel;
    module.def(
        "columns_together",
        [](int type) {
            const Together together = columns_together(checked_type(type));
            return std::make_tuple(together.group, together.scale, together.block);
        },
        py::arg("type"));
}

}  // namespace pyquant::bindings
