# ${no_amx}: an option by which GGML is compiled without its products by AMX, for Intel's CPUs from Sapphire Rapids on.
# GCC 12.2 stores 8 of the 64 bytes that configure AMX (its bug 114098): the first quantized matrix ends the process.
# Storing all 64 does not do: matrices of latent attention then have no backend, and Mamba faults.

include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-mno-amx-int8 PYQUANT_KNOWS_AMX)
set(no_amx $<$<BOOL:${PYQUANT_KNOWS_AMX}>:-mno-amx-int8>)
