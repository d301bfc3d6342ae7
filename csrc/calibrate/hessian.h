// Hessian statistics of a matrix's inputs: the sums over tokens of x x^T, x being n_in wide.
//
// The matrix is symmetric, so only its lower triangle is kept, in panels of kPanel columns: panel p has
// the columns from p * kPanel on and the rows from its first column down, row after row. Panels are
// what threads share, and a panel's sums do not depend on who makes them.
#pragma once

#include <cstdint>

#include "calibrate/rows.h"

namespace pyquant::calibrate {

class Bf16Strips;

inline constexpr int64_t kPanel = 256;  // wide enough for SGEMM's full speed

// Places of the sums of an input in memory: n_in sums of squares, made as llama-imatrix makes them, and
// then the panels, if the whole Hessian is wanted.
struct Layout {
    int64_t n_in;
    bool all;

    int64_t n_panels() const { return (n_in + kPanel - 1) / kPanel; }
    int64_t panel_offset(int64_t panel) const {
        return n_in + panel * kPanel * n_in - kPanel * kPanel * (panel * (panel - 1) / 2);
    }
    int64_t size() const;  // in floats
};

// Adds the rows, tokens' inputs, times weight, to the sums. rounded: where they are rounded to BF16, products
// then being of what they are rounded to; null for those of the rows as they are.
void add_rows(const Layout & layout, const Rows & rows, float weight, Bf16Strips * rounded, int n_threads,
              float * sums);

}  // namespace pyquant::calibrate
