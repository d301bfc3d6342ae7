#include "calibrate/token_products.h"

#include <algorithm>
#include <vector>

#include "calibrate/bf16_strips.h"
#include "stream/chunks.h"

namespace pyquant::calibrate {

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

void multiply_rows(const Rows & x, const Rows & w, int64_t n_in, int n_threads, float * out) {
    Bf16Strips of_x, of_w;
    of_x.resize(n_in, x.n);
    of_w.resize(n_in, w.n);
    const std::vector<Span> in_x = spans(x.n, kBlockColumns), in_w = spans(w.n, kBlockColumns);
    share_each(int64_t(in_x.size() + in_w.size()), n_threads, [&](int64_t i) {
        const auto part = size_t(i);
        part < in_x.size() ? of_x.round_rows(x, in_x[part]) : of_w.round_rows(w, in_w[part - in_x.size()]);
    });
    std::fill_n(out, x.n * w.n, 0.0f);
    add_all({{of_x, of_w, out, x.n, w.n, false}}, n_threads);
}

}  // namespace pyquant::calibrate
