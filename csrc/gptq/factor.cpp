#include "gptq/factor.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <stdexcept>

#include "stream/cholesky.h"
#include "stream/chunks.h"

namespace pyquant::gptq {
namespace {

constexpr double kLeastWeight = 1e-6;  // of a column, in units of the mean

std::vector<int32_t> falling(const float * hessian, int64_t n, Together together) {
    std::vector<float> diagonal(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
        diagonal[size_t(i)] = hessian[i * n + i];
    }
    std::vector<int32_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    // Sorts runs of `size` within [begin, end) by their sums, as wholes.
    const auto sort = [&](int64_t begin, int64_t end, int64_t size) {
        const auto sum = [&](int64_t at) {
            double total = 0;
            for (int64_t i = at; i < at + size; ++i) {
                total += diagonal[size_t(order[size_t(i)])];
            }
            return total;
        };
        std::vector<std::pair<double, int64_t>> runs;
        for (int64_t at = begin; at < end; at += size) {
            runs.emplace_back(-sum(at), at);
        }
        std::stable_sort(runs.begin(), runs.end());
        std::vector<int32_t> sorted;
        for (const auto & [unused, at] : runs) {
            sorted.insert(sorted.end(), order.begin() + at, order.begin() + at + size);
        }
        std::copy(sorted.begin(), sorted.end(), order.begin() + begin);
    };
    for (int64_t at = 0; at < n; at += together.scale) {
        sort(at, at + together.scale, together.group);
    }
    for (int64_t at = 0; at < n && together.block > together.scale; at += together.block) {
        sort(at, at + together.block, together.scale);
    }
    sort(0, n, together.block);
    return order;
}

// U and D of H = U D U^T, in the factor's order of columns. `added`: to the diagonal of H.
void decompose(const float * hessian, int64_t n, double added, int n_threads, Factor & factor) {
    // Cholesky of the reversed matrix: H = C C^T, C upper triangular, in the order of the columns.
    // The lower triangle of columns is the upper one of rows.
    const std::unique_ptr<double[]> c(new double[size_t(n * n)]);
    const auto column = [&](int64_t k) { return int64_t(factor.order[size_t(n - 1 - k)]); };
    stream::share_each(n / kSub, n_threads, [&](int64_t part) {
        for (int64_t i = part * kSub; i < (part + 1) * kSub; ++i) {
            const float * row = hessian + column(i) * n;
            for (int64_t j = i; j < n; ++j) {
                c[size_t(i * n + j)] = row[column(j)];
            }
            c[size_t(i * n + i)] += added;
        }
    });
    if (!stream::decompose(c.get(), n, n_threads)) {
        throw std::domain_error("Hessian statistics are not positive definite");
    }
    // U[j][k] = C[j][k] / C[k][k]; reversed, row j of C is column n - 1 - j.
    const auto value = [&](int64_t j, int64_t k) { return c[size_t((n - 1 - k) * n + (n - 1 - j))]; };
    factor.diagonal.resize(size_t(n));
    for (int64_t k = 0; k < n; ++k) {
        factor.diagonal[size_t(k)] = float(value(k, k) * value(k, k));
        if (!(factor.diagonal[size_t(k)] > 0)) {  // LAPACK passes over NaNs
            throw std::domain_error("Hessian statistics are not positive definite");
        }
    }
    const int64_t n_panels = n / kSub;
    factor.panels.resize(size_t(kSub * kSub * (n_panels * (n_panels + 1) / 2)));
    stream::share_each(n_panels, n_threads, [&](int64_t p) {
        float * panel = const_cast<float *>(factor.panel(p));
        for (int64_t k = kSub * p; k < kSub * (p + 1); ++k) {
            for (int64_t j = 0; j < k; ++j) {
                panel[j * kSub + k - kSub * p] = float(value(j, k) / value(k, k));
            }
        }
    });
}

}  // namespace

Factor factorize(const float * hessian, int64_t n, float dampening, Together together, int n_threads) {
    Factor factor;
    factor.order = falling(hessian, n, together);
    double mean = 0;
    for (int64_t i = 0; i < n; ++i) {
        mean += hessian[i * n + i] / double(n);
    }
    const double added = mean > 0 ? dampening * mean : 1;
    decompose(hessian, n, added, n_threads, factor);
    factor.hessian.resize(size_t(n * n));
    stream::share_each(n / kSub, n_threads, [&](int64_t p) {
        float * panel = const_cast<float *>(factor.hessian_panel(p));
        for (int64_t j = 0; j < n; ++j) {
            const float * row = hessian + int64_t(factor.order[size_t(j)]) * n;
            for (int64_t k = kSub * p; k < kSub * (p + 1); ++k) {
                const double h = row[factor.order[size_t(k)]];
                panel[j * kSub + k - kSub * p] = float(j == k ? h + added : h);
            }
        }
    });
    return factor;
}

Factor independent(const float * weights, int64_t n) {
    Factor factor;
    factor.order.resize(size_t(n));
    std::iota(factor.order.begin(), factor.order.end(), 0);
    const double mean = std::accumulate(weights, weights + n, 0.0) / double(n);
    if (!std::isfinite(mean)) {
        throw std::domain_error("an importance matrix is not finite");
    }
    // A column that nothing enters is kept as well as the others let it be.
    const float least = mean > 0 ? float(kLeastWeight * mean) : 1;
    factor.diagonal.resize(size_t(n));
    std::transform(weights, weights + n, factor.diagonal.begin(),
                   [&](float w) { return std::max(w, least); });
    return factor;
}

}  // namespace pyquant::gptq
