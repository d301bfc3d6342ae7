#include "kernels/bf16_tile.h"

#include "cpu/features.h"

#if defined(__x86_64__) && __has_include(<avx512bf16intrin.h>)
#define PYQUANT_HAS_AVX512_BF16
#if __has_include(<amxbf16intrin.h>) || __has_include(<amxintrin.h>)  // GCC's name, Clang's
#define PYQUANT_HAS_AMX
#endif
#include "kernels/bf16_tile_x86.h"
#endif

namespace pyquant::kernels {

bool has_amx_tile() {
#if defined(PYQUANT_HAS_AMX)
    static const bool has = cpu::has_amx_bf16();
    return has;
#else
    return false;
#endif
}

const TileKernel * tile_kernel() {
#if defined(PYQUANT_HAS_AMX)
    if (has_amx_tile()) {
        return &kByAmx;
    }
#endif
#if defined(PYQUANT_HAS_AVX512_BF16)
    static const bool has_registers = cpu::has_avx512_bf16();
    return has_registers ? &kByRegisters : nullptr;
#else
    return nullptr;
#endif
}

}  // namespace pyquant::kernels
