#include "stream/cholesky.h"

#include <cblas.h>
#include <lapacke.h>

#include <algorithm>

#include "stream/chunks.h"

namespace pyquant::stream {
namespace {

constexpr int64_t kSide = 256;  // of a tile: wide enough for GEMM's full speed

struct Double {
    static constexpr auto potrf = scipy_LAPACKE_dpotrf_work;
    static constexpr auto trsm = scipy_cblas_dtrsm;
    static constexpr auto syrk = scipy_cblas_dsyrk;
    static constexpr auto gemm = scipy_cblas_dgemm;
};

struct Single {
    static constexpr auto potrf = scipy_LAPACKE_spotrf_work;
    static constexpr auto trsm = scipy_cblas_strsm;
    static constexpr auto syrk = scipy_cblas_ssyrk;
    static constexpr auto gemm = scipy_cblas_sgemm;
};

template <class Blas, class Real>
bool decompose_by(Real * c, int64_t n, int n_threads) {
    const int64_t n_tiles = (n + kSide - 1) / kSide;
    const auto tile = [&](int64_t i, int64_t j) { return c + j * kSide * n + i * kSide; };
    const auto side = [&](int64_t i) { return blasint(std::min(kSide, n - i * kSide)); };
    const auto stride = blasint(n);
    for (int64_t k = 0; k < n_tiles; ++k) {
        if (Blas::potrf(LAPACK_COL_MAJOR, 'L', side(k), tile(k, k), stride) != 0) {
            return false;
        }
        const int64_t below = n_tiles - k - 1;
        share_each(below, n_threads, [&](int64_t i) {
            Blas::trsm(CblasColMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, side(k + 1 + i),
                       side(k), 1, tile(k, k), stride, tile(k + 1 + i, k), stride);
        });
        share_each(below * (below + 1) / 2, n_threads, [&](int64_t at) {
            int64_t j = 0, i = at;  // columns of tiles, the longest first
            for (; i >= below - j; ++j) {
                i -= below - j;
            }
            j += k + 1;
            i += j;
            if (i == j) {
                Blas::syrk(CblasColMajor, CblasLower, CblasNoTrans, side(i), side(k), -1, tile(i, k), stride,
                           1, tile(i, i), stride);
                return;
            }
            Blas::gemm(CblasColMajor, CblasNoTrans, CblasTrans, side(i), side(j), side(k), -1, tile(i, k),
                       stride, tile(j, k), stride, 1, tile(i, j), stride);
        });
    }
    return true;
}

}  // namespace

bool decompose(double * matrix, int64_t n, int n_threads) {
    return decompose_by<Double>(matrix, n, n_threads);
}

bool decompose(float * matrix, int64_t n, int n_threads) {
    return decompose_by<Single>(matrix, n, n_threads);
}

}  // namespace pyquant::stream
