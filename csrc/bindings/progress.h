// Progress of a pass, and Ctrl-C during it.
#pragma once

#include <pybind11/functional.h>

#include <cstdint>
#include <functional>

namespace pyquant {

// (bytes read so far) -> None
using Progress = std::function<void(int64_t)>;

// What a pass calls while the GIL is released.
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

}  // namespace pyquant
