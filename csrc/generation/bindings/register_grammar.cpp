// csrc/generation/grammar: masks of tokens that a grammar allows.
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>

#include "bindings/arrays.h"
#include "generation/bindings/register_generation.h"
#include "generation/grammar/state.h"

namespace py = pybind11;

namespace pyquant::bindings {
namespace {

using namespace grammar;

std::vector<int32_t> copy(const Array<int32_t> & array) {
    return {array.data(), array.data() + array.size()};
}

py::list raw(const ClassArrays & classes) {
    py::list arrays;
    for (const std::string_view bytes : classes.raw()) {
        const auto * const data = reinterpret_cast<const uint8_t *>(bytes.data());
        arrays.append(Array<uint8_t>(py::ssize_t(bytes.size()), data));
    }
    return arrays;
}

// Views of the arrays.
RawClasses from_raw(const std::vector<Array<uint8_t>> & arrays) {
    RawClasses classes;
    if (arrays.size() != classes.size()) {
        throw py::value_error("classes: expected what another one's classes are");
    }
    std::transform(arrays.begin(), arrays.end(), classes.begin(), [](const Array<uint8_t> & array) {
        return std::string_view(reinterpret_cast<const char *>(array.data()), size_t(array.size()));
    });
    return classes;
}

std::shared_ptr<Compiled> compile(const Array<int32_t> & next, const Array<int32_t> & ends,
                                  const Array<int32_t> & actions, const Array<int32_t> & more,
                                  const Array<int32_t> & gotos, const Array<int32_t> & lengths,
                                  const Array<int32_t> & origins, int32_t start,
                                  const std::vector<py::bytes> & pieces, std::vector<int32_t> end_tokens,
                                  const std::optional<std::vector<Array<uint8_t>>> & classes) {
    if (next.ndim() != 2 || next.shape(1) != 256 || ends.ndim() != 1 || ends.shape(0) != next.shape(0)) {
        throw py::value_error("lexer: expected next (n_states, 256) and ends (n_states,)");
    }
    if (actions.ndim() != 2 || actions.shape(1) > kMaxTerminals || gotos.ndim() != 2 ||
        gotos.shape(0) != actions.shape(0) || lengths.size() != origins.size()) {
        throw py::value_error("parser: expected actions (n_states, at most 256 terminals) and gotos");
    }
    if (more.size() % 3 != 0) {
        throw py::value_error("parser: expected more (n, 3)");
    }
    const LexerTables lexer{next.data(), ends.data(), int32_t(ends.size())};
    const ParserTables parser{int32_t(actions.shape(1)),
                              int32_t(gotos.shape(1)),
                              start,
                              copy(actions),
                              copy(more),
                              copy(gotos),
                              copy(lengths),
                              copy(origins)};
    const std::vector<std::string_view> bytes(pieces.begin(), pieces.end());
    std::optional<RawClasses> found;
    if (classes) {
        found = from_raw(*classes);
    }
    const py::gil_scoped_release release;
    return std::make_shared<Compiled>(lexer, parser, bytes, std::move(end_tokens), found);
}

void write_mask(const State & state, Array<int32_t> & words) {
    if (words.size() != py::ssize_t(state.compiled().n_words())) {
        throw py::value_error("words: expected shape (ceil(n_vocab / 32),)");
    }
    int32_t * data = words.mutable_data();
    const py::gil_scoped_release release;
    state.mask(data);
}

int32_t checked(const State & state, int64_t token) {
    if (token < 0 || token >= int64_t(state.compiled().pieces.size())) {
        throw py::index_error("token: not in the vocabulary");
    }
    return int32_t(token);
}

}  // namespace

void register_grammar(py::module_ & module) {
    py::register_exception_translator([](std::exception_ptr error) {
        try {
            if (error) {
                std::rethrow_exception(error);
            }
        } catch (const TooManyWays & too_many) {
            const py::object type = py::module_::import("pyquant.errors").attr("GrammarError");
            PyErr_SetString(type.ptr(), too_many.what());
        }
    });
    module.attr("GRAMMAR_TERMINALS") = kMaxTerminals;
    py::class_<Compiled, std::shared_ptr<Compiled>> compiled(module, "Grammar");
    py::class_<State> state(module, "GrammarState");  // signatures need the names of both
    compiled
        .def(py::init(&compile), py::arg("next").noconvert(), py::arg("ends").noconvert(), py::kw_only(),
             py::arg("actions").noconvert(), py::arg("more").noconvert(), py::arg("gotos").noconvert(),
             py::arg("lengths").noconvert(), py::arg("origins").noconvert(), py::arg("start"),
             py::arg("pieces"), py::arg("end_tokens"), py::arg("classes") = py::none())
        .def_property_readonly("n_words", &Compiled::n_words)
        .def_property_readonly("n_bytes", [](const Compiled & self) { return self.classes.bytes(); })
        .def_property_readonly("classes", [](const Compiled & self) { return raw(self.classes.arrays()); })
        .def("start", [](const std::shared_ptr<Compiled> & self) { return State(self); });
    state.def("mask", &write_mask, py::arg("words").noconvert())
        .def(
            "allows", [](const State & self, int64_t token) { return self.allows(checked(self, token)); },
            py::arg("token"))
        .def(
            "advance", [](State & self, int64_t token) { return self.advance(checked(self, token)); },
            py::arg("token"))
        .def("roll_back", &State::roll_back, py::arg("n_tokens"))
        .def("forced", [](const State & self) { return py::bytes(self.forced()); })
        .def("copy", [](const State & self) { return State(self); })
        .def_property_readonly("may_end", &State::may_end)
        .def_property_readonly("must_end", &State::must_end);
}

}  // namespace pyquant::bindings
