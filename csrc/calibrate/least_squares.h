// Least squares over tokens, from their sums.
#pragma once

#include <cstdint>

namespace pyquant::calibrate {

// R (M + dampening * mean of M's diagonal * I)^-1, in place, by Cholesky's decomposition.
//
// hessian: H, (n, n), of which what is on and below the diagonal is read; gets the decomposition.
// right: R, (n_right, n); gets the result: NaN if M is not finite or, with what is added, not positive
// definite. Bytes do not depend on the number of threads.
//
// Float32 is enough: no eigenvalue is beyond the trace, so the condition is 1 + n / dampening at most.
void solve_damped(float * hessian, int64_t n, float dampening, float * right, int64_t n_right, int n_threads);

}  // namespace pyquant::calibrate
