// Tokens' inputs rounded to BF16, and the sums of their products in float32.
//
// Processors with an instruction for it multiply BF16 at twice the speed of float32. Rounding moves an input
// by 2^-8 of itself at most, up as often as down, so over a text's tokens little of that is left in second
// moments. These stay positive semidefinite: they are the exact ones of inputs nearby.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "calibrate/moments.h"

namespace pyquant::calibrate {

class Bf16Inputs {
public:
    static bool supported();  // by this processor

    void resize(int64_t n, int64_t n_in);

    // Rounds one panel's columns, to nearest and ties to even.
    void round(const Rows & rows, int64_t panel);

    // Adds the products, times weight, to a panel. All its rows have to be rounded.
    void add_products(float weight, int64_t panel, float * at) const;

private:
    size_t place(int64_t column, int64_t pair) const;

    int64_t n_in_ = 0;
    int64_t n_pairs_ = 0;
    // Two tokens' values in each element. Strips of columns stand one after the other, a pair of tokens
    // after the other in each: so what the inner loop reads is contiguous. Filled up with zeros.
    std::vector<uint32_t> pairs_;
};

}  // namespace pyquant::calibrate
