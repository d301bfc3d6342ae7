#include "calibrate/moments.h"

#include <algorithm>

#include <cblas.h>

namespace pyquant {

int64_t Layout::size() const {
    if (!all) {
        return n_in;
    }
    const int64_t last = n_panels() - 1, width = n_in - last * kPanel;
    return panel_offset(last) + width * width;
}

void add_rows(const Layout & layout, const Rows & rows, float weight, int64_t panel, float * sums) {
    const int64_t first = panel * kPanel, width = std::min(kPanel, layout.n_in - first);
    // In llama-imatrix's order and precision, so that its file comes out to the last bit.
    for (int64_t i = 0; i < rows.n; ++i) {
        const float * x = rows.data + i * rows.stride + first;
        for (int64_t j = 0; j < width; ++j) {
            sums[first + j] += weight * (x[j] * x[j]);
        }
    }
    if (!layout.all) {
        return;
    }
    const float * x = rows.data + first;
    const auto n = blasint(rows.n), stride = blasint(rows.stride), columns = blasint(width);
    float * at = sums + layout.panel_offset(panel);
    scipy_cblas_ssyrk(CblasRowMajor, CblasLower, CblasTrans, columns, n, weight, x, stride, 1, at, columns);
    const int64_t below = layout.n_in - first - width;
    if (below > 0) {
        scipy_cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, blasint(below), columns, n, weight,
                          x + width, stride, x, stride, 1, at + width * width, columns);
    }
}

}  // namespace pyquant
