// Columns of numbers rounded to BF16, and the sums of their products in float32.
//
// CPUs with instructions for it multiply BF16 at twice the speed of float32, or more. Rounding moves a number
// by 2^-8 of itself at most, up as often as down, so over a text's tokens little of that is left in Hessians.
// These stay positive semidefinite: they are the exact ones of inputs nearby.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "calibrate/rows.h"
#include "kernels/bf16_tile.h"

namespace pyquant::calibrate {

struct Span {
    int64_t begin, end;
};

// Lines without initial values: filling them took a good part of a product's time.
class Lines {
public:
    void resize(size_t n) {
        if (n > capacity_) {
            lines_.reset(new kernels::Line[n]);
            capacity_ = n;
        }
        size_ = n;
    }
    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    uint32_t * pairs() const { return lines_[0].pairs; }

private:
    std::unique_ptr<kernels::Line[]> lines_;
    size_t capacity_ = 0, size_ = 0;
};

class Bf16Strips {
public:
    static bool supported();  // by this CPU

    // Makes room for columns of n numbers each. as_rows: whether they are a tile's rows too.
    void resize(int64_t n, int64_t n_columns, bool as_rows = true);
    // Rounds columns of rows, to nearest and ties to even: a column's numbers are in as many rows.
    void round(const Numbers & rows, Span columns);
    // The same where each column is a row: its n numbers lie together.
    void round_rows(const Numbers & rows, Span columns);

    // A column's pairs from one on, where it is a tile's row, and where it is a tile's column
    // (kernels/bf16_tile.h).
    const uint32_t * as_row(int64_t column, int64_t pair) const;
    const uint32_t * as_column(int64_t column, int64_t pair) const {
        return pairs_.pairs() + place(column, pair);
    }
    int64_t n_pairs() const { return n_pairs_; }

private:
    size_t place(int64_t column, int64_t pair) const;
    size_t place_by_step(int64_t column, int64_t pair) const;
    uint32_t * pairs_at(int64_t column, int64_t pair) { return pairs_.pairs() + place(column, pair); }
    void copy_by_step(Span columns);

    int64_t n_ = 0;
    int64_t n_pairs_ = 0;
    // Two numbers of a column in each element. Strips of columns stand one after the other, a pair of numbers
    // after the other in each: so what the inner loop reads is contiguous. Filled up with zeros.
    Lines pairs_;
    Lines by_step_;  // the same, for CPUs that want rows so
};

// The products that are added up: those of columns `rows` of one with columns `columns` of another. Both
// spans begin with a strip. lower: leaves out what is above the diagonal, where a row's number is less than a
// column's.
struct Block {
    Span rows, columns;
    bool lower;
};

// Adds products, times weight, to `at`, where rows are `stride` apart. All columns have to be rounded.
void add_products(const Bf16Strips & a, const Bf16Strips & b, const Block & block, float weight, float * at,
                  int64_t stride);

}  // namespace pyquant::calibrate
