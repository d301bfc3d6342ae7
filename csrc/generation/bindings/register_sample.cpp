// csrc/generation/sample: drawing tokens.
#include <pybind11/stl.h>

#include "bindings/arrays.h"
#include "generation/bindings/register_generation.h"
#include "generation/sample/certainty.h"
#include "generation/sample/draw.h"
#include "generation/sample/verify.h"
#include "generation/sample/weights.h"

namespace py = pybind11;

namespace pyquant::bindings {
namespace {

void check_logits(const Array<float> & logits) {
    if (logits.ndim() != 2 || logits.shape(1) == 0) {
        throw py::value_error("logits: expected shape (n_rows, n_vocab)");
    }
}

// What is drawn, as arrays that Python gets.
struct Arrays {
    explicit Arrays(int64_t n_rows)
        : token(n_rows),
          log_p(n_rows),
          allowed(n_rows),
          sums({n_rows, int64_t(2)}),
          drawn{token.mutable_data(), log_p.mutable_data(), allowed.mutable_data(),
                reinterpret_cast<sample::Sums *>(sums.mutable_data())} {}

    py::tuple tuple() const { return py::make_tuple(token, log_p, allowed, sums); }

    py::array_t<int32_t> token;
    py::array_t<double> log_p, allowed, sums;
    sample::Drawn drawn;
};

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
    const Arrays out(n_rows);
    const float * in = logits.data();
    const int32_t * words = mask ? mask->data() : nullptr;
    const double * numbers = uniform.data();
    {
        const py::gil_scoped_release release;
        sample::draw(in, words, n_rows, n_vocab, {top_k, top_p, min_p, temperature}, numbers, out.drawn,
                     std::max(1, n_threads));
    }
    return out.tuple();
}

py::tuple draw_again_array(const Array<float> & logits, const Array<int64_t> & rows,
                           const Array<double> & sums, const Array<int32_t> & mask,
                           const Array<double> & uniform, float temperature, int32_t top_k, float top_p,
                           float min_p) {
    check_logits(logits);
    const int64_t n_vocab = logits.shape(1);
    if (sums.ndim() != 2 || sums.shape(0) != logits.shape(0) || sums.shape(1) != 2) {
        throw py::value_error("sums: expected shape (rows of logits, 2)");
    }
    if (rows.ndim() != 1 || uniform.ndim() != 1 || uniform.shape(0) != rows.shape(0) || mask.ndim() != 2 ||
        mask.shape(0) != rows.shape(0) || mask.shape(1) != py::ssize_t(sample::mask_words(n_vocab))) {
        throw py::value_error("rows, uniform: expected shape (n_rows,); mask: (n_rows, ceil(n_vocab / 32))");
    }
    const int64_t * which = rows.data();
    if (std::any_of(which, which + rows.size(),
                    [&](int64_t row) { return row < 0 || row >= logits.shape(0); })) {
        throw py::index_error("rows: there are not so many");
    }
    const Arrays out(rows.shape(0));
    const float * in = logits.data();
    const int32_t * words = mask.data();
    const double * numbers = uniform.data();
    const auto * known = reinterpret_cast<const sample::Sums *>(sums.data());
    {
        const py::gil_scoped_release release;
        sample::draw_again(in, which, known, words, rows.shape(0), n_vocab,
                           {top_k, top_p, min_p, temperature}, numbers, out.drawn);
    }
    return out.tuple();
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

// A row of logits, and perhaps a mask.
void check_row(const Array<float> & logits, const std::optional<Array<int32_t>> & mask, int64_t n_vocab) {
    if (logits.ndim() != 1 || logits.shape(0) != n_vocab || n_vocab == 0) {
        throw py::value_error("logits: expected shape (n_vocab,)");
    }
    if (mask && (mask->ndim() != 1 || mask->shape(0) != py::ssize_t(sample::mask_words(n_vocab)))) {
        throw py::value_error("mask: expected shape (ceil(n_vocab / 32),)");
    }
}

py::tuple draw_sure_row(const Array<float> & logits, const std::optional<Array<int32_t>> & mask,
                        double uniform, float temperature, int32_t top_k, float top_p, float min_p) {
    check_row(logits, mask, logits.size());
    sample::Certainty sure;
    const sample::Row row = sample::draw_sure(logits.data(), mask ? mask->data() : nullptr, logits.size(),
                                              {top_k, top_p, min_p, temperature}, uniform, sure);
    return py::make_tuple(row.token, row.log_p, sure.entropy, sure.top_p, sure.token_p, sure.seconds);
}

py::tuple verify_token(const Array<float> & target, const std::optional<Array<float>> & draft,
                       const std::optional<Array<int32_t>> & mask, int32_t token, double accept, double draw,
                       float temperature, int32_t top_k, float top_p, float min_p) {
    const int64_t n_vocab = target.size();
    check_row(target, mask, n_vocab);
    if (draft) {
        check_row(*draft, mask, n_vocab);
    }
    if (token < 0 || token >= n_vocab || (mask && !sample::allows(mask->data(), token))) {
        throw py::index_error("token: not in the vocabulary, or the mask refuses it");
    }
    const double uniform[] = {accept, draw};
    const sample::Verified verified =
        sample::verify(target.data(), draft ? draft->data() : nullptr, mask ? mask->data() : nullptr, n_vocab,
                       {top_k, top_p, min_p, temperature}, token, uniform);
    return py::make_tuple(verified.accepted, verified.token, verified.log_p);
}

}  // namespace

void register_sample(py::module_ & module) {
    module.def("draw", &draw_array, py::arg("logits").noconvert(), py::arg("mask").noconvert(),
               py::arg("uniform").noconvert(), py::kw_only(), py::arg("temperature"), py::arg("top_k"),
               py::arg("top_p"), py::arg("min_p"), py::arg("n_threads"));
    module.def("draw_again", &draw_again_array, py::arg("logits").noconvert(), py::arg("rows").noconvert(),
               py::arg("sums").noconvert(), py::arg("mask").noconvert(), py::arg("uniform").noconvert(),
               py::kw_only(), py::arg("temperature"), py::arg("top_k"), py::arg("top_p"), py::arg("min_p"));
    module.def("draw_sure", &draw_sure_row, py::arg("logits").noconvert(), py::arg("mask").noconvert(),
               py::arg("uniform"), py::kw_only(), py::arg("temperature"), py::arg("top_k"), py::arg("top_p"),
               py::arg("min_p"));
    module.def("verify", &verify_token, py::arg("target").noconvert(), py::arg("draft").noconvert(),
               py::arg("mask").noconvert(), py::arg("token"), py::arg("accept"), py::arg("draw"),
               py::kw_only(), py::arg("temperature"), py::arg("top_k"), py::arg("top_p"), py::arg("min_p"));
    module.def("entropy", &entropy_array, py::arg("logits").noconvert(), py::arg("n_threads"));
}

}  // namespace pyquant::bindings
