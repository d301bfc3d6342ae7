// One function per concept; module.cpp calls them.
#pragma once

#include <pybind11/pybind11.h>

namespace pyquant::bindings {

void register_errors(pybind11::module_ & module);
void register_kernels(pybind11::module_ & module);
void register_table(pybind11::module_ & module);
void register_stream(pybind11::module_ & module);
void register_gptq(pybind11::module_ & module);
void register_pqz(pybind11::module_ & module);
void register_gguf(pybind11::module_ & module);
void register_llama(pybind11::module_ & module);
void register_vocabulary(pybind11::module_ & module);
void register_interrupt(pybind11::module_ & module);
void register_calibrate(pybind11::module_ & module);

}  // namespace pyquant::bindings
