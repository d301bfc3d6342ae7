// Facts about all tokens of a vocabulary, by the functions of whichever llama.cpp made it: that need not be
// the library that this extension is linked to.
#include <pybind11/numpy.h>

#include <cstring>
#include <exception>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/register.h"
#include "llama.h"

namespace py = pybind11;

namespace pyquant::bindings {
namespace {

// llama_tokenize throws through its C interface where a vocabulary cannot write a text, as one without byte
// tokens cannot. What comes from ctypes would end the process. Raises ValueError.
Array<int32_t> tokenize(uintptr_t llama_tokenize_, uintptr_t vocabulary, const py::bytes & text,
                        bool add_special, bool parse_special) {
    const auto cut = reinterpret_cast<decltype(&llama_tokenize)>(llama_tokenize_);
    const auto * const vocab = reinterpret_cast<const llama_vocab *>(vocabulary);
    const std::string_view bytes = text;
    if (bytes.size() > size_t(std::numeric_limits<int32_t>::max()) - 2) {
        throw py::value_error("too long");
    }
    std::vector<int32_t> tokens(bytes.size() + 2);
    int32_t n;
    try {
        const py::gil_scoped_release release;
        n = cut(vocab, bytes.data(), int32_t(bytes.size()), tokens.data(), int32_t(tokens.size()),
                add_special, parse_special);
    } catch (const std::exception & error) {
        throw py::value_error(error.what());
    } catch (...) {
        throw py::value_error("no reason given");
    }
    if (n < 0) {
        throw py::value_error("more tokens than bytes");
    }
    return Array<int32_t>(py::ssize_t(n), tokens.data());
}

py::list token_pieces(uintptr_t llama_token_to_piece_, uintptr_t vocabulary, int32_t n_tokens) {
    const auto to_piece = reinterpret_cast<decltype(&llama_token_to_piece)>(llama_token_to_piece_);
    const auto * const vocab = reinterpret_cast<const llama_vocab *>(vocabulary);
    py::list pieces;
    std::string buffer(64, 0);
    for (int32_t token = 0; token < n_tokens; token++) {
        int32_t n;
        while ((n = to_piece(vocab, token, buffer.data(), int32_t(buffer.size()), 0, false)) < 0) {
            buffer.resize(size_t(-n));
        }
        pieces.append(py::bytes(buffer.data(), size_t(n)));
    }
    return pieces;
}

// The lengths of all pieces, int32, and behind them their bytes: another list gives others.
py::bytes join_pieces(const py::list & pieces) {
    std::vector<int32_t> sizes;
    size_t n = 0;
    for (const py::handle piece : pieces) {
        if (PyBytes_Check(piece.ptr()) == 0) {
            throw py::type_error("pieces: expected bytes");
        }
        sizes.push_back(int32_t(PyBytes_GET_SIZE(piece.ptr())));
        n += size_t(sizes.back());
    }
    const size_t n_sizes = sizes.size() * sizeof(int32_t);
    auto joined =
        py::reinterpret_steal<py::bytes>(PyBytes_FromStringAndSize(nullptr, py::ssize_t(n_sizes + n)));
    if (!joined) {
        throw py::error_already_set();
    }
    char * to = PyBytes_AS_STRING(joined.ptr());
    std::memcpy(to, sizes.data(), n_sizes);
    to += n_sizes;
    for (size_t i = 0; i < sizes.size(); ++i) {
        std::memcpy(to, PyBytes_AS_STRING(PyList_GET_ITEM(pieces.ptr(), py::ssize_t(i))), size_t(sizes[i]));
        to += sizes[i];
    }
    return joined;
}

Array<int32_t> tokens_that_end(uintptr_t llama_vocab_is_eog_, uintptr_t vocabulary, int32_t n_tokens) {
    const auto is_end = reinterpret_cast<decltype(&llama_vocab_is_eog)>(llama_vocab_is_eog_);
    const auto * const vocab = reinterpret_cast<const llama_vocab *>(vocabulary);
    std::vector<int32_t> ends;
    for (int32_t token = 0; token < n_tokens; token++) {
        if (is_end(vocab, token)) {
            ends.push_back(token);
        }
    }
    return Array<int32_t>(py::ssize_t(ends.size()), ends.data());
}

}  // namespace

void register_vocabulary(py::module_ & module) {
    module.def("tokenize", &tokenize, py::arg("llama_tokenize"), py::arg("vocabulary"), py::arg("text"),
               py::arg("add_special"), py::arg("parse_special"));
    module.def("token_pieces", &token_pieces, py::arg("llama_token_to_piece"), py::arg("vocabulary"),
               py::arg("n_tokens"));
    module.def("join_pieces", &join_pieces, py::arg("pieces"));
    module.def("tokens_that_end", &tokens_that_end, py::arg("llama_vocab_is_eog"), py::arg("vocabulary"),
               py::arg("n_tokens"));
}

}  // namespace pyquant::bindings
