#include <cblas.h>

#include "bindings/register.h"
#include "generation/bindings/register_generation.h"

PYBIND11_MODULE(_core, module) {  // with the GIL: llama.cpp's log and our hook are the process's
    module.doc() = "Kernels, tensor passes, GGUF headers and llama.cpp's policy; used through pyquant.";
    // Work is shared among threads of our own. OpenBLAS's would make last bits depend on how many they are.
    scipy_openblas_set_num_threads(1);
    using namespace pyquant::bindings;
    register_errors(module);  // first: what others register is asked before it
    register_kernels(module);
    register_table(module);
    register_stream(module);
    register_gptq(module);
    register_pqz(module);
    register_gguf(module);
    register_llama(module);
    register_vocabulary(module);
    register_interrupt(module);
    register_calibrate(module);
    register_generation(module);
}
