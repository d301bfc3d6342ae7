#include "calibrate/least_squares.h"

#include <lapacke.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace pyquant::calibrate {

void solve_damped(float * hessian, int64_t n, float dampening, float * right, int64_t n_right) {
    double mean = 0;
    for (int64_t i = 0; i < n; ++i) {
        mean += hessian[i * n + i] / double(n);
    }
    const auto added = mean == 0 ? 1.0f : float(dampening * mean);
    for (int64_t i = 0; i < n; ++i) {
        hessian[i * n + i] += added;
    }
    // What is below the diagonal of rows is above that of LAPACK's columns, and its right sides are our rows.
    const auto size = lapack_int(n);
    if (!std::isfinite(added) || scipy_LAPACKE_sposv_work(LAPACK_COL_MAJOR, 'U', size, lapack_int(n_right),
                                                          hessian, size, right, size) != 0) {
        std::fill_n(right, n * n_right, std::numeric_limits<float>::quiet_NaN());
    }
}

}  // namespace pyquant::calibrate
