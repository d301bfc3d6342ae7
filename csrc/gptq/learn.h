// Histogram that a table of values is fitted to: where weights lie in multiples of their block's scale, when
// that is chosen for the table as it is now.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "gptq/factor.h"
#include "stream/codec.h"

namespace pyquant::gptq {

inline constexpr int kBinsPerLevel = 16;  // an eighth of the distance at which rounding changes
inline constexpr int kBins = 256 * kBinsPerLevel;

// Sums of what a squared error of 1 in multiples of the scale costs, by bin, from -128 on.
using Positions = std::array<double, kBins>;

struct LearnPass {
    int file;
    int64_t offset;
    int64_t n_rows;
    int64_t n_per_row;
    const stream::Decoder * source;
    const float * weights;  // (n_per_row) of squared errors
    int8_t values[16];      // ascending
    int n_threads;
};

// tick as in stream/pass.h. Results do not depend on n_threads.
Positions find_positions(const LearnPass & pass, const std::function<void(int64_t)> & tick);

}  // namespace pyquant::gptq
