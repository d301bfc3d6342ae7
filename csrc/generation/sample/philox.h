// Random numbers that depend on nothing but where they are used.
#pragma once

#include <cstdint>

namespace pyquant::sample {

// The first number in [0, 1) of Philox 4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// 2011) with a key and the first half of a counter, as numpy.random.Philox gives it, which counts up first.
inline double uniform(uint64_t key0, uint64_t key1, uint64_t counter0, uint64_t counter1) {
    __extension__ using Product = unsigned __int128;
    constexpr uint64_t factors[2] = {0xD2E7470EE14C6C93, 0xCA5A826395121157};
    constexpr uint64_t steps[2] = {0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B};
    uint64_t x[4] = {counter0 + 1, counter1 + (counter0 + 1 == 0), 0, 0};
    for (int round = 0; round < 10; ++round) {
        const Product a = Product(factors[0]) * x[0], b = Product(factors[1]) * x[2];
        x[0] = uint64_t(b >> 64) ^ x[1] ^ key0;
        x[2] = uint64_t(a >> 64) ^ x[3] ^ key1;
        x[1] = uint64_t(b);
        x[3] = uint64_t(a);
        key0 += steps[0];
        key1 += steps[1];
    }
    return double(x[0] >> 11) * 0x1p-53;
}

}  // namespace pyquant::sample
