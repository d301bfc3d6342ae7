#include "calibrate/token_products.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "calibrate/bf16_strips.h"
#include "kernels/bf16_tile.h"
#include "stream/chunks.h"

namespace pyquant::calibrate {

using namespace kernels;
using namespace stream;

namespace {

// What a thread takes at a time: whole strips, whose columns stay in L2 while the rows go by.
constexpr int64_t kBlockRows = 1024, kBlockColumns = 256;

std::vector<Span> spans(int64_t n, int64_t together) {
    std::vector<Span> all;
    for (int64_t begin = 0; begin < n; begin += together) {
        all.push_back({begin, std::min(begin + together, n)});
    }
    return all;
}

// The sums of products of all columns of two, or of one with itself on and below the diagonal.
struct Sums {
    const Bf16Strips & a;
    const Bf16Strips & b;
    float * at;
    int64_t n_rows, n_columns;
    bool lower;
};

void add_all(const std::vector<Sums> & all, int n_threads) {
    struct Part {
        const Sums * sums;
        Block block;
    };
    std::vector<Part> parts;
    for (const Sums & sums : all) {
        for (const Span & columns : spans(sums.n_columns, kBlockColumns)) {
            for (const Span & rows : spans(sums.n_rows, kBlockRows)) {
                if (!sums.lower || rows.end > columns.begin) {
                    parts.push_back({&sums, {rows, columns, sums.lower}});
                }
            }
        }
    }
    share_each(int64_t(parts.size()), n_threads, [&](int64_t i) {
        const auto & [sums, block] = parts[size_t(i)];
        float * at = sums->at + block.rows.begin * sums->n_columns + block.columns.begin;
        add_products(sums->a, sums->b, block, 1, at, sums->n_columns);
    });
}

// Rounds some columns of a matrix into strips of these alone.
using Round = std::function<void(Bf16Strips & strips, const Span & columns)>;

// Writes the products of rows of x, n_in wide, with n_out columns of a matrix: a thread rounds some of these,
// and multiplies them with all rows.
void multiply(const Rows & x, int64_t n_in, int64_t n_out, int n_threads, float * out, const Round & round) {
    Bf16Strips of_x;
    of_x.resize(n_in, x.n);
    const std::vector<Span> in_x = spans(x.n, kBlockColumns);
    share_each(int64_t(in_x.size()), n_threads, [&](int64_t i) { of_x.round_rows(x, in_x[size_t(i)]); });
    const int64_t each =
        std::min(kBlockColumns, (n_out / std::max(1, n_threads) + kStrip - 1) / kStrip * kStrip);
    const std::vector<Span> parts = spans(n_out, std::max<int64_t>(each, kStrip));
    share_each(int64_t(parts.size()), n_threads, [&](int64_t i) {
        const Span & columns = parts[size_t(i)];
        const int64_t n = columns.end - columns.begin;
        Bf16Strips of_w;
        of_w.resize(n_in, n, /*as_rows=*/false);
        round(of_w, columns);
        for (int64_t row = 0; row < x.n; ++row) {
            std::fill_n(out + row * n_out + columns.begin, n, 0.0f);
        }
        for (const Span & rows : spans(x.n, kBlockRows)) {
            add_products(of_x, of_w, {rows, {0, n}, false}, 1, out + rows.begin * n_out + columns.begin,
                         n_out);
        }
    });
}

}  // namespace

void add_token_products(const Rows & y, int64_t n_y, const Rows & z, int64_t n_z, int n_threads,
                        float * hessian, float * moved) {
    Bf16Strips of_y, of_z;
    of_y.resize(y.n, n_y);
    of_z.resize(z.n, n_z);
    const std::vector<Span> in_y = spans(n_y, kBlockColumns), in_z = spans(n_z, kBlockColumns);
    share_each(int64_t(in_y.size() + in_z.size()), n_threads, [&](int64_t i) {
        const auto part = size_t(i);
        part < in_y.size() ? of_y.round(y, in_y[part]) : of_z.round(z, in_z[part - in_y.size()]);
    });
    add_all({{of_y, of_y, hessian, n_y, n_y, true}, {of_z, of_y, moved, n_z, n_y, false}}, n_threads);
}

void multiply_rows(const Rows & x, const Numbers & w, int64_t n_in, int n_threads, float * out) {
    multiply(x, n_in, w.n, n_threads, out, [&](Bf16Strips & strips, const Span & columns) {
        const int64_t n = columns.end - columns.begin;
        strips.round_rows({w.at(columns.begin, 0), n, w.stride, w.type}, {0, n});
    });
}

void multiply_columns(const Rows & x, const Numbers & w, int64_t n_out, int n_threads, float * out) {
    multiply(x, w.n, n_out, n_threads, out, [&](Bf16Strips & strips, const Span & columns) {
        strips.round({w.at(0, columns.begin), w.n, w.stride, w.type}, {0, columns.end - columns.begin});
    });
}

}  // namespace pyquant::calibrate
