#include "calibrate/least_squares.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "stream/cholesky.h"
#include "stream/chunks.h"

namespace pyquant::calibrate {

namespace {

constexpr int64_t kSide = 256;        // of tiles that are turned over at a time
constexpr int64_t kRightSides = 128;  // that a thread solves for at a time

// What is on and below the diagonal of rows goes on and below that of columns.
void turn_over(float * matrix, int64_t n, int n_threads) {
    stream::share_each((n + kSide - 1) / kSide, n_threads, [&](int64_t tiles) {
        const int64_t begin = tiles * kSide, end = std::min(n, begin + kSide);
        for (int64_t at = 0; at < end; at += kSide) {
            for (int64_t i = begin; i < end; ++i) {
                for (int64_t j = at; j < std::min(i, at + kSide); ++j) {
                    matrix[j * n + i] = matrix[i * n + j];
                }
            }
        }
    });
}

}  // namespace

void solve_damped(float * hessian, int64_t n, float dampening, float * right, int64_t n_right,
                  int n_threads) {
    double mean = 0;
    for (int64_t i = 0; i < n; ++i) {
        mean += hessian[i * n + i] / double(n);
    }
    const auto added = mean == 0 ? 1.0f : float(dampening * mean);
    for (int64_t i = 0; i < n; ++i) {
        hessian[i * n + i] += added;
    }
    turn_over(hessian, n, n_threads);
    if (!std::isfinite(added) || !stream::decompose(hessian, n, n_threads)) {
        std::fill_n(right, n * n_right, std::numeric_limits<float>::quiet_NaN());
        return;
    }
    // Our rows are columns of right sides.
    stream::share_each((n_right + kRightSides - 1) / kRightSides, n_threads, [&](int64_t part) {
        const int64_t begin = part * kRightSides;
        const auto size = blasint(n), n_columns = blasint(std::min(kRightSides, n_right - begin));
        for (const auto transposed : {CblasNoTrans, CblasTrans}) {
            scipy_cblas_strsm(CblasColMajor, CblasLeft, CblasLower, transposed, CblasNonUnit, size, n_columns,
                              1, hessian, size, right + begin * n, size);
        }
    });
}

}  // namespace pyquant::calibrate
