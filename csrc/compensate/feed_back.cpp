#include "compensate/encoder.h"

namespace pyquant {

void feed_back(const float * u, int64_t begin, int64_t end, const Floats * error, Floats * target) {
    constexpr int tile = 4;  // columns whose sums stay in registers
    for (int c = 0; c < kSub; c += tile) {
        Floats sum[tile][kGroups];
        for (int i = 0; i < tile; ++i) {
            for (int g = 0; g < kGroups; ++g) {
                sum[i][g] = target[(c + i) * kGroups + g];
            }
        }
        for (int64_t j = begin; j < end; ++j) {
            const float * row = u + j * kSub + c;
            for (int i = 0; i < tile; ++i) {
                for (int g = 0; g < kGroups; ++g) {
                    sum[i][g] += row[i] * error[j * kGroups + g];
                }
            }
        }
        for (int i = 0; i < tile; ++i) {
            for (int g = 0; g < kGroups; ++g) {
                target[(c + i) * kGroups + g] = sum[i][g];
            }
        }
    }
}

}  // namespace pyquant
