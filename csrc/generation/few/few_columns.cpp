#include "generation/few/few_columns.h"

#include <cstring>

#include "kernels/half.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define PYQUANT_FEW_COLUMNS 1
#include "generation/few/few_columns_x86.h"
#endif

namespace pyquant::kernels {

#if PYQUANT_FEW_COLUMNS
namespace {

template <class Tile, int n_rows, int n_columns>
void multiply_tile(const char * rows, size_t row_bytes, int64_t n, const char * columns, size_t column_bytes,
                   float * y, int64_t y_stride) {
    float sums[n_columns * n_rows];
    Tile::template run<n_rows, n_columns>(rows, row_bytes, n, columns, column_bytes, sums);
    for (int c = 0; c < n_columns; ++c) {
        std::memcpy(y + c * y_stride, sums + c * n_rows, n_rows * sizeof(float));
    }
}

template <class Tile, int n_columns>
void multiply_rows(const char * rows, size_t row_bytes, int64_t n_rows, int64_t n, const char * columns,
                   size_t column_bytes, float * y, int64_t y_stride) {
    constexpr int at_once = Tile::rows(n_columns);
    int64_t row = 0;
    for (; row + at_once <= n_rows; row += at_once) {
        multiply_tile<Tile, at_once, n_columns>(rows + size_t(row) * row_bytes, row_bytes, n, columns,
                                                column_bytes, y + row, y_stride);
    }
    for (; row < n_rows; ++row) {
        multiply_tile<Tile, 1, n_columns>(rows + size_t(row) * row_bytes, row_bytes, n, columns, column_bytes,
                                          y + row, y_stride);
    }
}

template <class Tile>
void multiply_with(const char * rows, size_t row_bytes, int64_t n_rows, int64_t n, const char * columns,
                   size_t column_bytes, int n_columns, float * y, int64_t y_stride) {
    using Run = void (*)(const char *, size_t, int64_t, int64_t, const char *, size_t, float *, int64_t);
    static constexpr Run runs[kFewColumns] = {
        &multiply_rows<Tile, 1>, &multiply_rows<Tile, 2>, &multiply_rows<Tile, 3>, &multiply_rows<Tile, 4>,
        &multiply_rows<Tile, 5>, &multiply_rows<Tile, 6>, &multiply_rows<Tile, 7>, &multiply_rows<Tile, 8>};
    runs[n_columns - 1](rows, row_bytes, n_rows, n, columns, column_bytes, y, y_stride);
}

}  // namespace

int few_tile(FewWeights type) {
    return type == FewWeights::q8_0 ? kFewColumns : kFloatColumns;
}

int few_lanes(FewWeights type) {
    return type == FewWeights::q8_0 ? 8 : kFloatLanes;
}

int few_step(FewWeights type) {
    switch (type) {
        case FewWeights::f16: return HalfWeights::step;
        case FewWeights::bf16: return BfloatWeights::step;
        default: return kBlock;
    }
}

bool few_pairs(FewWeights type) {
    return type == FewWeights::bf16 && BfloatWeights::pairs;
}

size_t prepared_bytes(FewWeights type, int64_t n) {
    size_t size = 0;
    switch (type) {
        case FewWeights::f16: size = size_t(n) * sizeof(float); break;
        case FewWeights::bf16: size = size_t(n) * sizeof(BfloatWeights::Activation); break;
        case FewWeights::q8_0: size = size_t(n / kBlock) * sizeof(FewBlock); break;
    }
    return (size + 63) / 64 * 64;
}

void prepare(FewWeights type, const void * converted, int64_t begin, int64_t n, void * column) {
    const auto * numbers = static_cast<const uint16_t *>(converted);
    switch (type) {
        case FewWeights::f16: halves_to_floats(numbers, n, static_cast<float *>(column) + begin); break;
        case FewWeights::bf16: {
            auto * out = static_cast<BfloatWeights::Activation *>(column) + begin;
            if constexpr (sizeof *out == sizeof(float)) {
                bfloats_to_floats(numbers, n, reinterpret_cast<float *>(out));
            } else {
                std::memcpy(out, numbers, size_t(n) * sizeof *out);
            }
            break;
        }
        case FewWeights::q8_0: {
            const auto * blocks = static_cast<const BlockQ8_0 *>(converted);
            auto * out = static_cast<FewBlock *>(column) + begin / kBlock;
            for (int64_t b = 0; b < n / kBlock; ++b) {
                out[b].d = half_to_float(blocks[b].d);
                for (int j = 0; j < kBlock; ++j) {
                    out[b].codes[j] = uint8_t(uint8_t(blocks[b].codes[j]) + kMoved);
                }
            }
            break;
        }
    }
}

void multiply_few(FewWeights type, const void * rows, size_t row_bytes, int64_t n_rows, int64_t n,
                  const void * columns, int n_columns, float * y, int64_t y_stride) {
    const auto * from = static_cast<const char *>(rows);
    const auto * x = static_cast<const char *>(columns);
    const size_t column_bytes = prepared_bytes(type, n);
    switch (type) {
        case FewWeights::f16:
            multiply_with<FloatTile<HalfWeights>>(from, row_bytes, n_rows, n, x, column_bytes, n_columns, y,
                                                  y_stride);
            break;
        case FewWeights::bf16:
            multiply_with<FloatTile<BfloatWeights>>(from, row_bytes, n_rows, n, x, column_bytes, n_columns, y,
                                                    y_stride);
            break;
        case FewWeights::q8_0:
            multiply_with<Q8_0Tile>(from, row_bytes, n_rows, n, x, column_bytes, n_columns, y, y_stride);
            break;
    }
}
#else
int few_tile(FewWeights) {
    return 0;
}

int few_lanes(FewWeights) {
    return 0;
}

int few_step(FewWeights) {
    return kBlock;
}

bool few_pairs(FewWeights) {
    return false;
}

size_t prepared_bytes(FewWeights, int64_t) {
    return 0;
}

void prepare(FewWeights, const void *, int64_t, int64_t, void *) {}

void multiply_few(FewWeights, const void *, size_t, int64_t, int64_t, const void *, int, float *, int64_t) {}
#endif

}  // namespace pyquant::kernels
