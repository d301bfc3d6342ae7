#include "gptq/row_feedback.h"

#include <algorithm>
#include <vector>

#include "gptq/rounder.h"
#include "stream/chunks.h"

namespace pyquant::gptq {

using namespace stream;

namespace {

constexpr int64_t kPanel = kRows;  // columns of the matrix, in the lanes in which `feed_back` has rows

// A matrix while it is rounded.
struct Matrix {
    const float * weights;
    int64_t n_rows, n_in;
    const Factor & rows;
    const Encoder & encoder;
    std::vector<Floats> errors;  // 32 columns after the other, (n_rows, 32) each, rows in the factor's order
    uint8_t * stored;
    float * values;

    int64_t row(int64_t k) const { return rows.order[size_t(k)]; }

    Floats * errors_of(int64_t k, int64_t column) {
        return &errors[size_t((column / kPanel * n_rows + k) * kGroups)];
    }
};

// Rounds rows [first, first + n), n at most 32, which know the errors of those before `known`.
void round_together(Matrix & matrix, int64_t first, int64_t n, int64_t known) {
    const int64_t n_in = matrix.n_in, row_bytes = matrix.encoder.row_bytes(n_in);
    std::vector<float> wanted(size_t(n * n_in));
    for (int64_t at = 0; at < n_in; at += kPanel) {
        Floats target[kSub * kGroups]{};
        auto * targets = reinterpret_cast<float *>(target);
        for (int64_t r = 0; r < n; ++r) {
            std::copy_n(matrix.weights + matrix.row(first + r) * n_in + at, kPanel, targets + r * kPanel);
        }
        feed_back(matrix.rows.panel(first / kSub), 0, known, matrix.errors_of(0, at), target);
        for (int64_t r = 0; r < n; ++r) {
            std::copy_n(targets + r * kPanel, kPanel, &wanted[size_t(r * n_in + at)]);
        }
    }
    std::vector<uint8_t> made(size_t(n * row_bytes));
    try {
        matrix.encoder.encode(wanted.data(), first, n, n_in, nullptr, made.data());
    } catch (const BadWeight & bad) {
        const int64_t row = matrix.row(first + bad.index / n_in);
        throw BadWeight(row * n_in + bad.index % n_in, bad.value);
    }
    std::vector<float> & decoded = wanted;
    matrix.encoder.decode(made.data(), n, n_in, decoded.data());
    for (int64_t r = 0; r < n; ++r) {
        const int64_t row = matrix.row(first + r);
        const float *value = &decoded[size_t(r * n_in)], *weight = matrix.weights + row * n_in;
        std::copy_n(&made[size_t(r * row_bytes)], row_bytes, matrix.stored + row * row_bytes);
        std::copy_n(value, n_in, matrix.values + row * n_in);
        for (int64_t at = 0; at < n_in; at += kPanel) {
            auto * error = reinterpret_cast<float *>(matrix.errors_of(first + r, at));
            for (int64_t k = 0; k < kPanel; ++k) {
                error[k] = weight[at + k] - value[at + k];
            }
        }
    }
}

}  // namespace

void round_rows(const float * weights, int64_t n_rows, int64_t n_in, const Factor & rows, int64_t together,
                const Encoder & encoder, int n_threads, uint8_t * stored, float * values) {
    Matrix matrix{weights, n_rows, n_in, rows, encoder, {}, stored, values};
    matrix.errors.resize(size_t(n_in / kPanel * n_rows * kGroups));
    for (int64_t begin = 0; begin < n_rows; begin += together) {
        const int64_t end = std::min(begin + together, n_rows);
        share_each((end - begin + kSub - 1) / kSub, n_threads, [&](int64_t i) {
            const int64_t first = begin + i * kSub;
            round_together(matrix, first, std::min<int64_t>(kSub, end - first), begin);
        });
    }
}

}  // namespace pyquant::gptq
