// csrc/generation/sample with csrc/generation/grammar: tokens drawn and followed by a grammar in one call.
#include <pybind11/stl.h>

#include <chrono>

#include "bindings/arrays.h"
#include "generation/bindings/register_generation.h"
#include "generation/grammar/state.h"
#include "generation/sample/draw.h"
#include "generation/sample/philox.h"

namespace py = pybind11;

namespace pyquant::bindings {
namespace {

using grammar::State;
using States = std::vector<State *>;

class Keeper : public sample::Keeper {
public:
    explicit Keeper(const States & states) : ended(states.size()), states_(states) {}

    void turn_to(int64_t row) override { row_ = size_t(row); }

    void expect(int32_t token) override { states_[row_]->compiled().pieces.expect(token); }

    bool allows(int32_t token) override { return states_[row_]->allows_of_many(token); }

    void mask(int32_t * words) override {
        const auto begin = std::chrono::steady_clock::now();
        states_[row_]->mask(words);
        seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }

    bool take(int32_t token) override {
        const State::Step step = states_[row_]->take(token);
        ended[row_] = step == State::Step::kMustEnd;
        return step != State::Step::kRefused;
    }

    double seconds = 0;       // that masks took
    std::vector<bool> ended;  // whether nothing but an end may come after what was taken

private:
    const States & states_;
    size_t row_ = 0;
};

py::tuple draw_kept(const Array<float> & logits, const States & states, const Array<uint64_t> & places,
                    float temperature, int32_t top_k, float top_p, float min_p) {
    if (logits.ndim() != 2 || logits.shape(0) != py::ssize_t(states.size())) {
        throw py::value_error("logits: expected shape (number of states, n_vocab)");
    }
    const int64_t n_rows = logits.shape(0), n_vocab = logits.shape(1);
    for (const State * state : states) {
        if (state->compiled().pieces.size() != size_t(n_vocab)) {
            throw py::value_error("states: expected those of a vocabulary of as many tokens as logits");
        }
    }
    if (places.ndim() != 2 || places.shape(0) != n_rows || places.shape(1) != 3) {
        throw py::value_error("places: expected shape (n_rows, 3)");
    }
    const sample::Settings settings{top_k, top_p, min_p, temperature};
    if (settings.truncates() && top_k <= 0) {
        throw py::value_error("top_k: expected more than 0 where top_p or min_p truncate");
    }
    py::array_t<int32_t> tokens(n_rows);
    py::array_t<double> log_p(n_rows), allowed(n_rows), sums({n_rows, int64_t(2)});
    const sample::Drawn drawn{tokens.mutable_data(), log_p.mutable_data(), allowed.mutable_data(),
                              reinterpret_cast<sample::Sums *>(sums.mutable_data())};
    const float * in = logits.data();
    const auto * of_rows = reinterpret_cast<const sample::Place *>(places.data());
    Keeper keeper(states);
    {
        const py::gil_scoped_release release;
        sample::draw_kept(in, n_rows, n_vocab, settings, of_rows, keeper, drawn);
    }
    return py::make_tuple(tokens, log_p, allowed, sums, keeper.ended, keeper.seconds);
}

}  // namespace

void register_kept(py::module_ & module) {
    module.def("uniform", &sample::uniform, py::arg("seed"), py::arg("sample"), py::arg("position"),
               py::arg("attempt"));
    module.def("draw_kept", &draw_kept, py::arg("logits").noconvert(), py::arg("states"),
               py::arg("places").noconvert(), py::kw_only(), py::arg("temperature"), py::arg("top_k"),
               py::arg("top_p"), py::arg("min_p"));
}

}  // namespace pyquant::bindings
