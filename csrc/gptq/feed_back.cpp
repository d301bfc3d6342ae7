#include <algorithm>

#include "gptq/rounder.h"

namespace pyquant::gptq {
namespace {

constexpr int kTile = 16 / kGroups;  // columns whose sums stay in registers
constexpr int64_t kRun = 128;  // columns whose errors, and what is read of the panel, stay in the first cache

}  // namespace

void feed_back(const float * u, int64_t begin, int64_t end, const Floats * error, Floats * target) {
    for (int64_t from = begin; from < end; from += kRun) {
        const int64_t to = std::min(end, from + kRun);
        for (int c = 0; c < kSub; c += kTile) {
            Floats sum[kTile * kGroups];
            std::copy_n(target + c * kGroups, kTile * kGroups, sum);
            for (int64_t j = from; j < to; ++j) {
                for (int i = 0; i < kTile; ++i) {
                    for (int g = 0; g < kGroups; ++g) {
                        sum[i * kGroups + g] =
                            fma(u[j * kSub + c + i], error[j * kGroups + g], sum[i * kGroups + g]);
                    }
                }
            }
            std::copy_n(sum, kTile * kGroups, target + c * kGroups);
        }
    }
}

}  // namespace pyquant::gptq
