// Calls of Python by work that runs without the GIL: it says how far it is, and hears Ctrl-C.
#pragma once

#include <pybind11/functional.h>

#include <cstdint>
#include <functional>

namespace pyquant::bindings {

// (bytes done so far) -> None
using Progress = std::function<void(int64_t)>;

// Gives the function that the work calls; progress has to outlive it.
inline auto tick_of(const Progress & progress) {
    return [&progress](int64_t bytes) {
        const pybind11::gil_scoped_acquire acquire;
        if (PyErr_CheckSignals() != 0) {  // Ctrl-C is heard within one tick
            throw pybind11::error_already_set();
        }
        if (progress) {
            progress(bytes);
        }
    };
}

}  // namespace pyquant::bindings
