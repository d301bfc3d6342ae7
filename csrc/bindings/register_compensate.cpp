#include <pybind11/numpy.h>

#include <memory>

#include "bindings/register.h"
#include "compensate/codec.h"
#include "compensate/factor.h"

namespace py = pybind11;
using namespace pyquant;

namespace {

using Array = py::array_t<float, py::array::c_style>;

std::shared_ptr<const Factor> make_factor(const Array & moments, float damping, int together) {
    if (moments.ndim() != 2 || moments.shape(0) != moments.shape(1) || moments.shape(0) % together != 0) {
        throw py::value_error("moments: expected shape (n, n), n a multiple of the columns that share a scale");
    }
    const int64_t n = moments.shape(0);
    const float * data = moments.data();
    const py::gil_scoped_release release;
    return std::make_shared<const Factor>(factorize(data, n, damping, together));
}

std::shared_ptr<const Factor> make_independent(const Array & weights) {
    if (weights.ndim() != 1 || weights.shape(0) % kSub != 0) {
        throw py::value_error("weights: expected shape (n,), n a multiple of 32");
    }
    return std::make_shared<const Factor>(independent(weights.data(), weights.shape(0)));
}

}  // namespace

void register_compensate(py::module_ & module) {
    py::class_<Factor, std::shared_ptr<Factor>>(module, "Factor");
    module.def("factorize", &make_factor, py::arg("moments").noconvert(), py::kw_only(), py::arg("damping"), py::arg("together"));
    module.def("independent", &make_independent, py::arg("weights").noconvert());
    module.def("compensated_codec", [](int type, std::shared_ptr<Factor> factor) { return compensated_codec(ggml_type(type), factor); });
    module.def("compensated_table_codec", [](const py::array_t<int8_t> & value, std::shared_ptr<Factor> factor) { return compensated_table_codec(value.data(), factor); });
}
