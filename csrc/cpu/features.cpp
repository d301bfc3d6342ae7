#include "cpu/features.h"

#if defined(__x86_64__)
#include <cpuid.h>

#include <cstdint>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace pyquant::cpu {

#if defined(__x86_64__)

namespace {

struct Registers {
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(uint32_t leaf, uint32_t part = 0) {
    Registers r;
    __get_cpuid_count(leaf, part, &r.eax, &r.ebx, &r.ecx, &r.edx);
    return r;
}

bool all(uint32_t bits, uint32_t wanted) {
    return (bits & wanted) == wanted;
}

constexpr uint32_t bit(int n) {
    return uint32_t(1) << n;
}

// Which registers the system saves for each process: XCR0.
bool are_saved(uint32_t registers) {
    if (!all(cpuid(1).ecx, bit(27))) {  // OSXSAVE
        return false;
    }
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return all(low, registers);
}

// AMX's registers of 8 KB are saved only for processes that asked for them: Linux's <asm/prctl.h>.
bool may_use_amx() {
#if defined(__linux__)
    constexpr long request = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM
    return syscall(SYS_arch_prctl, request, tile_data) == 0;
#else
    return false;
#endif
}

}  // namespace

bool has_avx2() {
    static const bool has =
        are_saved(bit(1) | bit(2)) &&
        all(cpuid(1).ecx, bit(12) | bit(22) | bit(23) | bit(29)) &&  // FMA, MOVBE, POPCNT, F16C
        all(cpuid(7).ebx, bit(3) | bit(5) | bit(8)) &&               // BMI, AVX2, BMI2
        all(cpuid(0x80000001).ecx, bit(5));                          // LZCNT
    return has;
}

bool has_avx512() {
    static const bool has = has_avx2() && are_saved(bit(5) | bit(6) | bit(7)) &&
                            all(cpuid(7).ebx, bit(16) | bit(17) | bit(28) | bit(30) | bit(31));
    return has;
}

bool has_avx512_vnni() {
    static const bool has = has_avx512() && all(cpuid(7).ecx, bit(11));
    return has;
}

bool has_avx512_vbmi() {
    static const bool has = has_avx512() && all(cpuid(7).ecx, bit(1));
    return has;
}

bool has_avx512_bf16() {
    static const bool has = has_avx512() && all(cpuid(7, 1).eax, bit(5));
    return has;
}

bool has_amx_bf16() {
    static const bool has = has_avx512_bf16() && are_saved(bit(17) | bit(18)) &&
                            all(cpuid(7).edx, bit(22) | bit(24)) && may_use_amx();
    return has;
}

#elif defined(__aarch64__)

namespace {

// As Linux's <asm/hwcap.h> numbers them.
constexpr unsigned long kAsimdDp = 1 << 20;                // AT_HWCAP
constexpr unsigned long kI8mm = 1 << 13, kBf16 = 1 << 14;  // AT_HWCAP2

bool has_bits([[maybe_unused]] unsigned long of, [[maybe_unused]] unsigned long wanted) {
#if defined(__linux__)
    return (getauxval(of) & wanted) == wanted;
#else
    return false;
#endif
}

}  // namespace

bool has_dotprod() {
    return has_bits(16, kAsimdDp);
}

bool has_i8mm() {
    return has_dotprod() && has_bits(26, kI8mm | kBf16);
}

#endif

}  // namespace pyquant::cpu
