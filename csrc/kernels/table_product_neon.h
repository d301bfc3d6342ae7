// The path for 64-bit ARM: a look-up is one TBL, four products of a row one SDOT.
#pragma once

#include <arm_neon.h>

#include <cstring>

#include "kernels/table_product.h"

namespace pyquant::kernels {
namespace {

template <int n_columns>
struct NeonDotprod {
    static void run(const TableGroup * group, const Table & table, const Activations * x, int64_t x_stride,
                    int64_t n_blocks, float * y) {
        constexpr int rows = kGroup / 4;  // in a register
        const int8x16_t values = vld1q_s8(table);
        const uint8x16_t nibble = vdupq_n_u8(15);
        for (int row = 0; row < kGroup; row += rows) {
            float32x4_t sum[n_columns];
            for (int c = 0; c < n_columns; ++c) {
                sum[c] = vdupq_n_f32(0);
            }
            for (int64_t b = 0; b < n_blocks; ++b) {
                int8x16_t weights[kQuads];
                for (int p = 0; p < kPlanes; ++p) {
                    const uint8x16_t codes = vld1q_u8(group[b].codes[p][row]);
                    weights[p] = vqtbl1q_s8(values, vandq_u8(codes, nibble));
                    weights[p + kPlanes] = vqtbl1q_s8(values, vshrq_n_u8(codes, 4));
                }
                const float32x4_t d = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(group[b].d + row)));
                for (int c = 0; c < n_columns; ++c) {
                    const Activations & column = x[b * x_stride + c];
                    int32x4_t products = vdupq_n_s32(0);
                    for (int q = 0; q < kQuads; ++q) {
                        int32_t quad;
                        std::memcpy(&quad, column.codes + q * kQuad, sizeof quad);
                        products = vdotq_s32(products, weights[q], vreinterpretq_s8_s32(vdupq_n_s32(quad)));
                    }
                    sum[c] = vfmaq_f32(sum[c], vcvtq_f32_s32(products), vmulq_n_f32(d, column.d));
                }
            }
            for (int c = 0; c < n_columns; ++c) {
                vst1q_f32(y + c * kGroup + row, sum[c]);
            }
        }
    }
};

}  // namespace
}  // namespace pyquant::kernels
