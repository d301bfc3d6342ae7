// The input's Hessian statistics as the quantizer wants them: an order of the columns, and
// H = U D U^T in that order, U unit upper triangular.
//
// An error e of a row costs e H e^T = sum over k of D[k] (e[k] + sum over j < k of e[j] U[j][k])^2, so a
// column that is rounded after others aims at its weight plus that sum (Chee et al., QuIP, 2023; GPTQ
// does the same from the inverse of H).
#pragma once

#include <cstdint>
#include <vector>

#include "gptq/scale_search.h"

namespace pyquant::gptq {

struct Factor {
    std::vector<int32_t> order;   // (n) the column that comes k-th
    std::vector<float> diagonal;  // (n) D, in that order
    std::vector<float> panels;    // U above its diagonal, 32 columns at a time: see panel()
    std::vector<float> hessian;   // H, 32 columns at a time: see hessian_panel()

    int64_t n() const { return int64_t(order.size()); }

    // Says whether errors are passed on: not without Hessian statistics; D are the columns' weights then.
    bool passes_on() const { return !panels.empty(); }

    // (32 * (p + 1), 32) row-major: U[j][32 p + c], zero on the diagonal and below it.
    const float * panel(int64_t p) const { return panels.data() + kSub * kSub * (p * (p + 1) / 2); }

    // (n, 32) row-major: H[j][32 p + c].
    const float * hessian_panel(int64_t p) const { return hessian.data() + kSub * n() * p; }
};

// Columns that share something in a type, and stay together in the order of columns: a scale, or a block.
struct Together {
    int group;  // rounded together: stay in their order, too
    int scale;
    int block;
};

// hessian: (n, n) symmetric; n a multiple of 32 and of a block. To its diagonal `dampening` times the mean of
// the diagonal is added. Blocks, the columns of a scale within a block, and these columns come in order of
// falling diagonal. The result does not depend on the number of threads. Throws std::domain_error where that
// is not positive definite.
Factor factorize(const float * hessian, int64_t n, float dampening, Together together, int n_threads);

// weights: (n) of the columns, for a quantizer that knows no Hessian statistics; 0 as a millionth of the
// mean.
Factor independent(const float * weights, int64_t n);

}  // namespace pyquant::gptq
