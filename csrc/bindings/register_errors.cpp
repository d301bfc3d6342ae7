// Errors of C++ as Python's. Their texts hold names of files and of metadata, and what llama.cpp and GGML
// say: bytes that need not be UTF-8, and that pybind11 would decode strictly.
#include <cstring>
#include <stdexcept>

#include "bindings/register.h"

namespace pyquant::bindings {

namespace py = pybind11;

namespace {

void raise(PyObject * type, const char * text) {
    const auto message = py::reinterpret_steal<py::object>(
        PyUnicode_DecodeUTF8(text, py::ssize_t(std::strlen(text)), "backslashreplace"));
    if (message) {
        PyErr_SetObject(type, message.ptr());
    }
}

}  // namespace

void register_errors(py::module_ &) {
    py::register_exception_translator([](std::exception_ptr raised) {
        try {
            std::rethrow_exception(raised);
        } catch (const py::value_error & error) {
            raise(PyExc_ValueError, error.what());
        } catch (const std::invalid_argument & error) {
            raise(PyExc_ValueError, error.what());
        } catch (const py::builtin_exception &) {
            throw;
        } catch (const std::runtime_error & error) {
            raise(PyExc_RuntimeError, error.what());
        }
    });
}

}  // namespace pyquant::bindings
