// What the wing adds to the extension, in one call.
#pragma once

#include <pybind11/pybind11.h>

namespace pyquant::bindings {

void register_few_columns(pybind11::module_ & module);
void register_few_queries(pybind11::module_ & module);
void register_sample(pybind11::module_ & module);
void register_grammar(pybind11::module_ & module);
void register_kept(pybind11::module_ & module);

inline void register_generation(pybind11::module_ & module) {
    register_few_columns(module);
    register_few_queries(module);
    register_sample(module);
    register_grammar(module);
    register_kept(module);
}

}  // namespace pyquant::bindings
