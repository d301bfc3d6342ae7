// Products of a few rows with a few columns, by the vector instructions that this build may use: GGML is
// built for the same ones.
#pragma once

#include <cstring>

#include "generation/few/few_columns.h"
#include "generation/few/floats_x86.h"

namespace pyquant::kernels {
namespace {

// Asks for the next n_rows rows, a part at every step through the rows before them, in the order in which
// they stand in memory: the processor foresees one stream, not several short ones. They go to the second
// cache; the first has the columns.
class Ahead {
public:
    Ahead(const char * rows, int n_rows, size_t row_bytes, size_t step_bytes)
        : next_(rows + size_t(n_rows) * row_bytes),
          step_bytes_(step_bytes) {}

    void ask() {
        _mm_prefetch(next_, _MM_HINT_T1);
        next_ += step_bytes_;
    }

private:
    const char * next_;
    size_t step_bytes_;
};

// Columns of floats whose sums, with those of a few rows, stay in registers.
#if defined(__AVX512F__)
constexpr int kFloatColumns = 8;
#else
constexpr int kFloatColumns = 6;
#endif

// Rows whose sums with n_columns columns stay in registers, with a weight of each row and an activation.
constexpr int rows_at_once(int n_columns) {
#if defined(__AVX512F__)
    return n_columns <= 6 ? 4 : 3;
#else
    return n_columns <= 2 ? 4 : n_columns <= 4 ? 3 : n_columns <= 6 ? 2 : 1;
#endif
}

struct HalfWeights {
    using Activation = float;
    static constexpr int step = kFloatLanes;
    static Floats weights(const uint16_t * w) { return load_halves(w); }
    static Floats activations(const float * x) { return load(x); }
    static Floats add(Floats w, Floats x, Floats sum) { return multiply_add(w, x, sum); }
};

struct BfloatWeights {
#if defined(__AVX512BF16__)
    using Activation = uint16_t;
    static constexpr int step = 2 * kFloatLanes;
    static constexpr bool pairs = true;
    static __m512bh weights(const uint16_t * w) { return (__m512bh)_mm512_loadu_si512(w); }
    static __m512bh activations(const uint16_t * x) { return weights(x); }
    static Floats add(__m512bh w, __m512bh x, Floats sum) { return _mm512_dpbf16_ps(sum, w, x); }
#else
    using Activation = float;
    static constexpr int step = kFloatLanes;
    static constexpr bool pairs = false;
    static Floats weights(const uint16_t * w) { return load_bfloats(w); }
    static Floats activations(const float * x) { return load(x); }
    static Floats add(Floats w, Floats x, Floats sum) { return multiply_add(w, x, sum); }
#endif
};

template <class Type>
struct FloatTile {
    static constexpr int rows(int n_columns) { return rows_at_once(n_columns); }

    template <int n_rows, int n_columns>
    static void run(const char * rows, size_t row_bytes, int64_t n, const char * columns, size_t column_bytes,
                    float * sums) {
        using Activation = typename Type::Activation;
        Floats sum[n_columns * n_rows] = {};
        Ahead ahead(rows, n_rows, row_bytes, Type::step * sizeof(uint16_t));
        for (int64_t k = 0; k < n; k += Type::step) {
            decltype(Type::weights(nullptr)) w[n_rows];
#pragma GCC unroll 8
            for (int r = 0; r < n_rows; ++r) {
                const auto * row = reinterpret_cast<const uint16_t *>(rows + size_t(r) * row_bytes);
                w[r] = Type::weights(row + k);
                ahead.ask();
            }
#pragma GCC unroll 8
            for (int c = 0; c < n_columns; ++c) {
                const auto * x = reinterpret_cast<const Activation *>(columns + size_t(c) * column_bytes);
                const auto activations = in_register(Type::activations(x + k));
#pragma GCC unroll 8
                for (int r = 0; r < n_rows; ++r) {
                    sum[c * n_rows + r] = Type::add(w[r], activations, sum[c * n_rows + r]);
                }
            }
        }
        sum_each<n_columns * n_rows>(sum, sums);
    }
};

// A block of activations of a Q8_0 product. codes: with kMoved added.
struct FewBlock {
    float d;
    uint8_t codes[kBlock];
};

#if defined(__AVX512VNNI__)
// The processor multiplies unsigned numbers with signed ones: activations are moved up by 128, and every sum
// begins at -128 times its weights.
constexpr uint8_t kMoved = 128;

// A register holds a block of each of two rows.
struct Q8_0Tile {
    static constexpr int rows(int) { return 4; }

    template <int n_rows, int n_columns>
    static void run(const char * rows, size_t row_bytes, int64_t n, const char * columns, size_t column_bytes,
                    float * sums) {
        constexpr int n_pairs = (n_rows + 1) / 2;
        constexpr size_t second = n_rows > 1;  // a row alone is paired with itself
        const __m512i moved = _mm512_set1_epi8(char(kMoved));
        __m512 sum[n_columns * n_pairs] = {};
        Ahead ahead(rows, n_rows, row_bytes, sizeof(BlockQ8_0));
        for (int64_t b = 0; b < n / kBlock; ++b) {
            __m512i w[n_pairs], begin[n_pairs];
            __m512 d[n_pairs];
#pragma GCC unroll 8
            for (int p = 0; p < n_pairs; ++p) {
                const char * row = rows + size_t(2 * p) * row_bytes;
                const auto & low = reinterpret_cast<const BlockQ8_0 *>(row)[b];
                const auto & high = reinterpret_cast<const BlockQ8_0 *>(row + second * row_bytes)[b];
                const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(low.codes));
                ahead.ask();
                ahead.ask();
                w[p] =
                    _mm512_inserti64x4(_mm512_castsi256_si512(codes),
                                       _mm256_loadu_si256(reinterpret_cast<const __m256i *>(high.codes)), 1);
                begin[p] = _mm512_sub_epi32(_mm512_setzero_si512(),
                                            _mm512_dpbusd_epi32(_mm512_setzero_si512(), moved, w[p]));
                d[p] = _mm512_insertf32x8(_mm512_set1_ps(_cvtsh_ss(low.d)), _mm256_set1_ps(_cvtsh_ss(high.d)),
                                          1);
            }
#pragma GCC unroll 8
            for (int c = 0; c < n_columns; ++c) {
                const auto & x = reinterpret_cast<const FewBlock *>(columns + size_t(c) * column_bytes)[b];
                const __m512i codes =
                    _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(x.codes)));
                const __m512 scale = _mm512_set1_ps(x.d);
#pragma GCC unroll 8
                for (int p = 0; p < n_pairs; ++p) {
                    const __m512i products = _mm512_dpbusd_epi32(begin[p], codes, w[p]);
                    sum[c * n_pairs + p] = _mm512_fmadd_ps(
                        _mm512_mul_ps(d[p], scale), _mm512_cvtepi32_ps(products), sum[c * n_pairs + p]);
                }
            }
        }
        float all[n_columns * n_pairs * 2 + 2];
#pragma GCC unroll 8
        for (int i = 0; i < n_columns * n_pairs; i += 2) {
            sum_quarters(add_quarters(sum[i], sum[i + 1 < n_columns * n_pairs ? i + 1 : i]), all + 2 * i);
        }
        for (int c = 0; c < n_columns; ++c) {
            std::memcpy(sums + c * n_rows, all + c * n_pairs * 2, n_rows * sizeof(float));
        }
    }
};
#else
constexpr uint8_t kMoved = 0;

struct Q8_0Tile {
    static constexpr int rows(int n_columns) { return n_columns <= 4 ? 2 : 1; }

    template <int n_rows, int n_columns>
    static void run(const char * rows, size_t row_bytes, int64_t n, const char * columns, size_t column_bytes,
                    float * sums) {
        const __m256i ones = _mm256_set1_epi16(1);
        __m256 sum[n_columns * n_rows] = {};
        Ahead ahead(rows, n_rows, row_bytes, sizeof(BlockQ8_0));
        for (int64_t b = 0; b < n / kBlock; ++b) {
            __m256i w[n_rows];
            float d[n_rows];
            for (int r = 0; r < n_rows; ++r) {
                const auto & block = reinterpret_cast<const BlockQ8_0 *>(rows + size_t(r) * row_bytes)[b];
                w[r] = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(block.codes));
                d[r] = _cvtsh_ss(block.d);
                ahead.ask();
            }
            for (int c = 0; c < n_columns; ++c) {
                const auto & x = reinterpret_cast<const FewBlock *>(columns + size_t(c) * column_bytes)[b];
                const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(x.codes));
                for (int r = 0; r < n_rows; ++r) {
                    // The processor multiplies unsigned numbers with signed ones: |w| with x of w's sign. A
                    // pair is at most 2 * 128 * 127, as no code of x is -128 (which has no other sign).
                    const __m256i pairs =
                        _mm256_maddubs_epi16(_mm256_abs_epi8(w[r]), _mm256_sign_epi8(codes, w[r]));
                    const __m256 products = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, ones));
                    sum[c * n_rows + r] =
                        _mm256_fmadd_ps(_mm256_set1_ps(d[r] * x.d), products, sum[c * n_rows + r]);
                }
            }
        }
        for (int i = 0; i < n_columns * n_rows; ++i) {
            sums[i] = sum_lanes(_mm_add_ps(_mm256_extractf128_ps(sum[i], 1), _mm256_castps256_ps128(sum[i])));
        }
    }
};
#endif

}  // namespace
}  // namespace pyquant::kernels
