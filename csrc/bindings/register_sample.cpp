// csrc/sample: drawing tokens.
#include <pybind11/stl.h>

#include "bindings/arrays.h"
#include "bindings/register.h"
#include "sample/draw.h"
#include "sample/weights.h"

namespace py = pybind11;

namespace pyquant::bindings {
namespace {

void check_logits(const Array<float> & logits) {
    if (logits.ndim() != 2 || logits.shape(1) == 0) {
        throw py::value_error("logits: expected shape (n_rows, n_vocab)");
    }
}

py::tuple draw_array(const Array<float> & logits, const std::optional<Array<int32_t>> & mask,
                     const Array<double> & uniform, float temperature, int32_t top_k, float top_p,
                     float min_p, int n_threads) {
    check_logits(logits);
    const int64_t n_rows = logits.shape(0), n_vocab = logits.shape(1);
    if (uniform.ndim() != 1 || uniform.shape(0) != n_rows) {
        throw py::value_error("uniform: expected shape (n_rows,)");
    }
    if (mask && (mask->ndim() != 2 || mask->shape(0) != n_rows ||
                 mask->shape(1) != py::ssize_t(sample::mask_words(n_vocab)))) {
        throw py::value_error("mask: expected shape (n_rows, ceil(n_vocab / 32))");
    }
    py::array_t<int32_t> token(n_rows);
    py::array_t<double> log_p(n_rows), allowed(n_rows);
    const float * in = logits.data();
    const int32_t * words = mask ? mask->data() : nullptr;
    const double * numbers = uniform.data();
    const sample::Drawn drawn{token.mutable_data(), log_p.mutable_data(), allowed.mutable_data()};
    {
        const py::gil_scoped_release release;
        sample::draw(in, words, n_rows, n_vocab, {top_k, top_p, min_p, temperature}, numbers, drawn,
                     std::max(1, n_threads));
    }
    return py::make_tuple(token, log_p, allowed);
}

py::array_t<double> entropy_array(const Array<float> & logits, int n_threads) {
    check_logits(logits);
    const int64_t n_rows = logits.shape(0), n_vocab = logits.shape(1);
    py::array_t<double> entropy(n_rows);
    const float * in = logits.data();
    double * out = entropy.mutable_data();
    {
        const py::gil_scoped_release release;
        sample::entropy(in, n_rows, n_vocab, out, std::max(1, n_threads));
    }
    return entropy;
}

}  // namespace

void register_sample(py::module_ & module) {
    module.def("draw", &draw_array, py::arg("logits").noconvert(), py::arg("mask").noconvert(),
               py::arg("uniform").noconvert(), py::kw_only(), py::arg("temperature"), py::arg("top_k"),
               py::arg("top_p"), py::arg("min_p"), py::arg("n_threads"));
    module.def("entropy", &entropy_array, py::arg("logits").noconvert(), py::arg("n_threads"));
}

}  // namespace pyquant::bindings
