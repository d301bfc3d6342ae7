// Numbers of GGML types, as Python gives them.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "ggml.h"

namespace pyquant::bindings {

// GGML itself looks types up unchecked. Raises ValueError: there is no such type, or no longer.
inline ggml_type checked_type(int type) {
    if (type < 0 || type >= GGML_TYPE_COUNT || ggml_blck_size(ggml_type(type)) == 0) {
        throw pybind11::value_error("type: " + std::to_string(type) + " is none of GGML's");
    }
    return ggml_type(type);
}

}  // namespace pyquant::bindings
