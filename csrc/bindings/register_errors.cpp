// Errors of C++ as Python's. Their texts hold names of files and of metadata, and what llama.cpp and GGML
// say: bytes that need not be UTF-8, and that pybind11 would decode strictly.
#include <cstring>
#include <new>
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

// All that pybind11 knows by itself too. It would ask the first extension that was loaded; but in a wheel
// each has a C++ library of its own, to which an exception of another one is unknown.
void register_errors(py::module_ &) {
    py::register_exception_translator([](std::exception_ptr raised) {
        try {
            std::rethrow_exception(raised);
        } catch (const py::value_error & error) {
            raise(PyExc_ValueError, error.what());
        } catch (const py::builtin_exception & error) {
            error.set_error();
        } catch (const std::bad_alloc & error) {
            raise(PyExc_MemoryError, error.what());
        } catch (const std::out_of_range & error) {
            raise(PyExc_IndexError, error.what());
        } catch (const std::logic_error & error) {
            raise(PyExc_ValueError, error.what());
        } catch (const std::exception & error) {
            raise(PyExc_RuntimeError, error.what());
        }
    });
}

}  // namespace pyquant::bindings
