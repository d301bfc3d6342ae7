#include "calibrate/hessian.h"

#include <algorithm>

#include <cblas.h>

#include "calibrate/bf16_strips.h"
#include "stream/chunks.h"

namespace pyquant::calibrate {

using namespace stream;

namespace {

// Adds in llama-imatrix's order and precision, so that its file comes out to the last bit.
void add_squares(const Rows & rows, float weight, int64_t first, int64_t width, float * sums) {
    for (int64_t i = 0; i < rows.n; ++i) {
        const float * x = rows.data + i * rows.stride + first;
        for (int64_t j = 0; j < width; ++j) {
            sums[first + j] += weight * (x[j] * x[j]);
        }
    }
}

void add_exact(const Rows & rows, float weight, int64_t first, int64_t width, int64_t below, float * at) {
    const float * x = rows.data + first;
    const auto n = blasint(rows.n), stride = blasint(rows.stride), columns = blasint(width);
    scipy_cblas_ssyrk(CblasRowMajor, CblasLower, CblasTrans, columns, n, weight, x, stride, 1, at, columns);
    if (below > 0) {
        scipy_cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, blasint(below), columns, n, weight,
                          x + width, stride, x, stride, 1, at + width * width, columns);
    }
}

}  // namespace

int64_t Layout::size() const {
    if (!all) {
        return n_in;
    }
    const int64_t last = n_panels() - 1, width = n_in - last * kPanel;
    return panel_offset(last) + width * width;
}

void add_rows(const Layout & layout, const Rows & rows, float weight, Bf16Strips * rounded, int n_threads,
              float * sums) {
    if (layout.all && rounded) {
        rounded->resize(rows.n, layout.n_in);
        share_each(layout.n_panels(), n_threads, [&](int64_t panel) {
            rounded->round(rows, {panel * kPanel, std::min((panel + 1) * kPanel, layout.n_in)});
        });
    }
    share_each(layout.n_panels(), n_threads, [&](int64_t panel) {
        const int64_t first = panel * kPanel, width = std::min(kPanel, layout.n_in - first);
        add_squares(rows, weight, first, width, sums);
        float * at = sums + layout.panel_offset(panel);
        if (layout.all && rounded) {
            const Block below{{first, layout.n_in}, {first, first + width}, true};
            add_products(*rounded, *rounded, below, weight, at, width);
        } else if (layout.all) {
            add_exact(rows, weight, first, width, layout.n_in - first - width, at);
        }
    });
}

}  // namespace pyquant::calibrate
