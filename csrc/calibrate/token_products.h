// Products of tokens' numbers rounded to BF16: sums over tokens of two of theirs, and a matrix times each.
#pragma once

#include <cstdint>

#include "calibrate/rows.h"

namespace pyquant::calibrate {

// Adds the sums over tokens of y y^T to `hessian`, (n_y, n_y), of which only the lower triangle is kept, and
// those of z y^T to `moved`, (n_z, n_y). y, z: of as many tokens.
void add_token_products(const Rows & y, int64_t n_y, const Rows & z, int64_t n_z, int n_threads,
                        float * hessian, float * moved);

// out: (x.n, w.n), the products of each row of x with each row of w, both n_in wide.
void multiply_rows(const Rows & x, const Numbers & w, int64_t n_in, int n_threads, float * out);

// out: (x.n, n_out), x times w, whose rows are n_out wide.
void multiply_columns(const Rows & x, const Numbers & w, int64_t n_out, int n_threads, float * out);

}  // namespace pyquant::calibrate
