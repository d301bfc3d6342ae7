// pyquant._cpu: which of the variants of pyquant._core run on this CPU. Compiled for any CPU.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "cpu/features.h"

namespace {

using namespace pyquant::cpu;

// The best first. Names as in CMakeLists.txt, which says the instructions of each.
std::vector<std::string> variants() {
    std::vector<std::string> names;
#if defined(__x86_64__)
    if (has_avx512_vnni() && has_avx512_vbmi() && has_avx512_bf16()) {
        names.push_back("x86_64_v4");
    }
    if (has_avx2()) {
        names.push_back("x86_64_v3");
    }
#elif defined(__aarch64__)
    if (has_i8mm()) {
        names.push_back("armv8_6");
    }
    if (has_dotprod()) {
        names.push_back("armv8_2");
    }
    names.push_back("armv8_0");
#endif
    return names;
}

}  // namespace

PYBIND11_MODULE(_cpu, module, pybind11::mod_gil_not_used()) {
    module.doc() = "Which of the variants of pyquant._core run on this CPU.";
    module.def("variants", &variants);
}
