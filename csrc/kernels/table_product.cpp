#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes the undefined lanes inside its own intrinsics for ours (PR 105593). Before any header.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "kernels/table_product.h"

#include <cstring>
#include <utility>

#include "cpu/features.h"
#include "kernels/half.h"

#if defined(__x86_64__)
#include "kernels/table_product_x86.h"
#elif defined(__ARM_FEATURE_DOTPROD)
#include "kernels/table_product_neon.h"
#endif

namespace pyquant::kernels {
namespace {

constexpr int kLanes = kGroup * kQuad;

// A look-up is no vector operation for a compiler that knows no byte shuffle; 16 comparisons are.
void look_up(const uint8_t (&codes)[kLanes], const Table & table, int8_t (&values)[kLanes]) {
    uint8_t found[kLanes] = {};
    for (uint8_t code = 0; code < 16; ++code) {
        const uint8_t value = uint8_t(table[code]);
        for (int j = 0; j < kLanes; ++j) {
            found[j] |= uint8_t(-uint8_t(codes[j] == code)) & value;
        }
    }
    std::memcpy(values, found, kLanes);
}

template <int n_columns>
struct Portable {
    static void run(const TableGroup * group, const Table & table, const Activations * x, int64_t x_stride,
                    int64_t n_blocks, float * y) {
        float sum[n_columns][kGroup] = {};
        for (int64_t b = 0; b < n_blocks; ++b) {
            int8_t weights[kQuads][kLanes];
            for (int p = 0; p < kPlanes; ++p) {
                uint8_t low[kLanes], high[kLanes];
                std::memcpy(low, group[b].codes[p], kLanes);
                for (int j = 0; j < kLanes; ++j) {
                    high[j] = low[j] >> 4;
                    low[j] &= 15;
                }
                look_up(low, table, weights[p]);
                look_up(high, table, weights[p + kPlanes]);
            }
            float d[kGroup];
            for (int row = 0; row < kGroup; ++row) {
                d[row] = half_to_float(group[b].d[row]);
            }
            for (int c = 0; c < n_columns; ++c) {
                const Activations & column = x[b * x_stride + c];
                int32_t products[kLanes] = {};
                for (int q = 0; q < kQuads; ++q) {
                    int8_t quads[kLanes];
                    for (int row = 0; row < kGroup; ++row) {
                        std::memcpy(quads + row * kQuad, column.codes + q * kQuad, kQuad);
                    }
                    for (int j = 0; j < kLanes; ++j) {
                        products[j] += int16_t(weights[q][j]) * int16_t(quads[j]);
                    }
                }
                for (int row = 0; row < kGroup; ++row) {
                    const int32_t * quad = products + row * kQuad;
                    sum[c][row] += float(quad[0] + quad[1] + quad[2] + quad[3]) * (d[row] * column.d);
                }
            }
        }
        std::memcpy(y, sum, sizeof sum);
    }
};

// One function for each number of columns: their sums stay in registers.
template <template <int> class Kernel, int... zero_based>
void dispatch(const TableGroup * group, const Table & table, const Activations * x, int64_t x_stride,
              int64_t n_blocks, int n_columns, float * y, std::integer_sequence<int, zero_based...>) {
    using Run = void (*)(const TableGroup *, const Table &, const Activations *, int64_t, int64_t, float *);
    static constexpr Run runs[] = {&Kernel<zero_based + 1>::run...};
    runs[n_columns - 1](group, table, x, x_stride, n_blocks, y);
}

template <template <int> class Kernel>
void multiply_with(const TableGroup * group, const Table & table, const Activations * x, int64_t x_stride,
                   int64_t n_blocks, int n_columns, float * y) {
    dispatch<Kernel>(group, table, x, x_stride, n_blocks, n_columns, y,
                     std::make_integer_sequence<int, kTile>());
}

}  // namespace

void interleave(const BlockQ4_0 * rows, int n_rows, int64_t n_blocks, TableGroup * group) {
    for (int64_t b = 0; b < n_blocks; ++b) {
        TableGroup & out = group[b];
        if (n_rows < kGroup) {
            out = {};
        }
        for (int row = 0; row < n_rows; ++row) {
            const BlockQ4_0 & block = rows[row * n_blocks + b];
            out.d[row] = block.d;
            for (int p = 0; p < kPlanes; ++p) {
                std::memcpy(out.codes[p][row], block.codes + p * kQuad, kQuad);
            }
        }
    }
}

Activations activations(const BlockQ8_0 & block) {
    Activations out;
    out.d = half_to_float(block.d);
    int32_t sum = 0;
    for (int j = 0; j < kBlock; ++j) {
        sum += block.codes[j];
        out.codes[j] = block.codes[j];
    }
    out.offset = -128 * sum;
    return out;
}

bool has_path(Path path) {
    switch (path) {
#if defined(__x86_64__)
        case Path::avx2: return cpu::has_avx2();
        case Path::avx512_vnni: return cpu::has_avx512_vnni();
#elif defined(__ARM_FEATURE_DOTPROD)
        case Path::neon_dotprod: return true;
#endif
        default: return path == Path::portable;
    }
}

Multiply multiply(Path path) {
    switch (path) {
#if defined(__x86_64__)
        case Path::avx2: return multiply_with<Avx2>;
        case Path::avx512_vnni: return multiply_with<Avx512Vnni>;
#elif defined(__ARM_FEATURE_DOTPROD)
        case Path::neon_dotprod: return multiply_with<NeonDotprod>;
#endif
        default: return multiply_with<Portable>;
    }
}

Multiply fastest_multiply() {
    for (const Path path : {Path::avx512_vnni, Path::avx2, Path::neon_dotprod}) {
        if (has_path(path)) {
            return multiply(path);
        }
    }
    return multiply(Path::portable);
}

}  // namespace pyquant::kernels
