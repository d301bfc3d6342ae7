// What this CPU, and the system that saves its registers, can run. __builtin_cpu_supports is not in every C++
// library that wheels are linked with.
#pragma once

namespace pyquant::cpu {

// Each of these takes those that come with it in every CPU: AVX2 is FMA, F16C and BMI, too.
#if defined(__x86_64__)
bool has_avx2();
bool has_avx512();  // F, BW, CD, DQ and VL: x86-64-v4
bool has_avx512_vnni();
bool has_avx512_vbmi();
bool has_avx512_bf16();
bool has_amx_bf16();  // asks Linux for its registers once
#elif defined(__aarch64__)
bool has_dotprod();
bool has_i8mm();  // and BF16
#endif

}  // namespace pyquant::cpu
