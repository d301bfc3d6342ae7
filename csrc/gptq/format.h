// Parts common to the formats in which blocks of kLanes rows are stored. The weight of a code is
// scale * level - minimum. A format says which scales and minima there are: when a super-block is entered
// (`open`: all of its columns, as far as they are known then), for each of its sub-blocks of 32 or 16 columns
// (`trials`, and `value` for what a stored one is worth), and when others are wanted (`representable`:
// what is stored for the nearest). In the end it makes bytes of a row (`store`).
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "gptq/levels.h"
#include "gptq/scale_search.h"

namespace pyquant::gptq {

enum Part { kScale, kMinimum, kParts };

// Scales of a super-block, beside its codes, as the file stores them: whole, for all of its columns, and for
// each sub-block a multiple of it.
template <int n_subs, int n_columns = kSub>
struct Scales {
    static constexpr int kSubs = n_subs;
    static constexpr int kColumns = n_columns;  // of a sub-block
    static constexpr int kSuper = n_subs * n_columns;

    Floats whole[kParts];
    Floats of_sub[n_subs][kParts];
};

// Trials for a sub-block, the most likely first. All are tried where errors are passed on, which a search
// knows nothing of; else the first few, as rounding to a scale of the file is all that is new.
inline constexpr int kTrialsAlone = 3;
inline constexpr int kMaxTrials = 9;

struct Trials {
    int n;
    Floats stored[kMaxTrials][kParts];
};

// What the codes of a format stand for.
template <class Format>
using LevelsOf = std::decay_t<decltype(std::declval<const Format &>().levels())>;

// Tells a format that has a `rows` which rows of the matrix a block holds: kLanes, from first_row on.
template <class Format>
auto tell_rows(const Format & format, int64_t first_row, typename Format::Stored & stored, int)
    -> decltype(format.rows(first_row, stored)) {
    format.rows(first_row, stored);
}
template <class Format>
void tell_rows(const Format &, int64_t, typename Format::Stored &, long) {}

// Codes of 32 columns, in their order in the row.
using Codes = std::array<Ints, kSub>;

// The low 4 bits of each.
inline void store_nibbles(const Codes & codes, int row, uint8_t * out) {
    for (int j = 0; j < kSub / 2; ++j) {
        out[j] = uint8_t((codes[size_t(j)][row] & 15) | codes[size_t(j + kSub / 2)][row] << 4);
    }
}

}  // namespace pyquant::gptq
