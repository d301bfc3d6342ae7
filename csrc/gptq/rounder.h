// Rounding of rows in which every column absorbs the errors of the others: at first for those before
// it, then, for some sweeps, for all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gptq/factor.h"
#include "gptq/format.h"
#include "gptq/refine.h"

namespace pyquant::gptq {

inline constexpr int kRows = 32;  // that share what is read of the factor
inline constexpr int kGroups = kRows / kLanes;
inline constexpr int kSweeps = 2;
inline constexpr float kNothing[8 * kSub]{};  // passed on

// target[c] += sum over j in [begin, end) of error[j] * u[j][c], for 32 columns and kRows rows, in the
// order of j. u: a panel; error: (end, kRows), target: (32, kRows).
void feed_back(const float * u, int64_t begin, int64_t end, const Floats * error, Floats * target);

template <class Format>
class Rounder {
public:
    Rounder(const Factor & factor, const Format & format)
        : factor_(factor),
          format_(format),
          stored_(size_t(factor.n() / kSuper * kGroups)),
          error_(size_t(factor.n() * kGroups)),
          level_(error_.size()),
          weight_(error_.size()),
          target_(size_t(kSuper * kGroups)) {}

    // x: n_rows rows, at most kRows, from the matrix's first_row on; out: the same rows, stored.
    void round(const float * x, int64_t first_row, int64_t n_rows, uint8_t * out) {
        const int64_t n = factor_.n();
        for (int64_t begin = 0; begin < n; begin += kSuper) {
            for (int group = 0; group < kGroups; ++group) {
                tell_rows(format_, first_row + group * kLanes, stored_at(begin, group), 0);
            }
        }
        for (int64_t k = 0; k < n; ++k) {
            float * lanes = reinterpret_cast<float *>(&weight_[size_t(k * kGroups)]);
            for (int64_t r = 0; r < kRows; ++r) {
                lanes[r] = r < n_rows ? x[r * n + factor_.order[size_t(k)]] : 0.0f;
            }
        }
        for (int64_t begin = 0; begin < n; begin += kSuper) {
            super_block(begin);
        }
        for (int sweep = 0; sweep < kSweeps && factor_.passes_on(); ++sweep) {
            for (int64_t first = 0; first < n; first += kSub) {
                refine_columns(first);
            }
        }
        for (int64_t begin = 0; begin < n; begin += kSuper) {
            store(begin, n_rows, out);
        }
    }

private:
    using Stored = typename Format::Stored;
    using Levels = LevelsOf<Format>;
    static constexpr int kSuper = Stored::kSuper;
    static constexpr int kColumns = Stored::kColumns;  // that share a scale

    Stored & stored_at(int64_t column, int group) {
        return stored_[size_t(column / kSuper * kGroups + group)];
    }
    int sub_at(int64_t column) const { return factor_.order[size_t(column)] % kSuper / kColumns; }

    void super_block(int64_t begin) {
        std::copy_n(&weight_[size_t(begin * kGroups)], target_.size(), target_.begin());
        for (int at = 0; at < kSuper && factor_.passes_on(); at += kSub) {
            feed_back(factor_.panel((begin + at) / kSub), 0, begin, error_.data(),
                      &target_[size_t(at * kGroups)]);
        }
        // A format looks at the columns in the order in which they are stored.
        Floats columns[kSuper];
        float weights[kSuper];
        if (Stored::kSubs > 1) {
            for (int group = 0; group < kGroups; ++group) {
                for (int k = 0; k < kSuper; ++k) {
                    const int at = factor_.order[size_t(begin + k)] % kSuper;
                    columns[at] = target_[size_t(k * kGroups + group)];
                    weights[at] = factor_.diagonal[size_t(begin + k)];
                }
                format_.open(columns, weights, stored_at(begin, group));
            }
        }
        int64_t done = begin;  // columns whose errors the targets of these 32 know
        for (int64_t first = begin; first < begin + kSuper; first += kColumns) {
            const int64_t panel = first / kSub * kSub;
            Floats * target = &target_[size_t((panel - begin) * kGroups)];
            done = first == panel ? begin : done;
            if (factor_.passes_on()) {
                feed_back(factor_.panel(first / kSub), done, first, error_.data(), target);
            }
            done = first;
            for (int group = 0; group < kGroups; ++group) {
                sub_block(first, target + (first - panel) * kGroups, group);
            }
        }
    }

    // The scale whose codes, found with errors passed on within the sub-block, cost least.
    void sub_block(int64_t first, const Floats * target, int group) {
        Floats weight[kColumns], aim[kColumns];
        for (int k = 0; k < kColumns; ++k) {
            weight[k] = weight_[size_t((first + k) * kGroups + group)];
            aim[k] = target[k * kGroups + group];
        }
        const float * d = &factor_.diagonal[size_t(first)];
        const float * u = factor_.passes_on() ? inner(factor_.panel(first / kSub), first) : nullptr;
        Stored & stored = stored_at(first, group);
        auto & taken = stored.of_sub[sub_at(first)];
        Trials trials{};
        format_.trials(stored, aim, d, trials);
        std::copy_n(trials.stored[0], kParts, taken);
        Floats level[kColumns], error[kColumns];
        if constexpr (Levels::kGroup > 1) {
            format_.levels().start(level, kColumns);
        }
        Floats least = all(3.0e38f), best[kColumns]{}, levels[kColumns]{};
        const int n_trials = u ? trials.n : std::min(trials.n, kTrialsAlone);
        for (int t = 0; t < n_trials; ++t) {
            const auto & tried = trials.stored[t];
            const Floats cost =
                attempt(format_.levels(), weight, aim, u, d, format_.value(stored, kScale, tried[kScale]),
                        format_.value(stored, kMinimum, tried[kMinimum]), error, level);
            const Ints better = cost < least;
            least = better ? cost : least;
            for (int part = 0; part < kParts; ++part) {
                taken[part] = better ? tried[part] : taken[part];
            }
            for (int k = 0; k < kColumns; ++k) {
                best[k] = better ? error[k] : best[k];
                levels[k] = better ? level[k] : levels[k];
            }
        }
        for (int k = 0; k < kColumns; ++k) {
            error_[size_t((first + k) * kGroups + group)] = best[k];
            level_[size_t((first + k) * kGroups + group)] = levels[k];
        }
    }

    static Floats attempt(const Levels & levels, const Floats * weight, const Floats * target,
                          const float * u, const float * d, Floats scale, Floats minimum, Floats * error,
                          Floats * level) {
        Floats aim[kColumns];
        std::copy_n(target, kColumns, aim);
        const Floats inv = inverse(scale);
        Floats cost{};
        for (int k = 0; k < kColumns; ++k) {
            if constexpr (Levels::kGroup == 1) {
                level[k] = levels.round((aim[k] + minimum) * inv);
            } else if (k % Levels::kGroup == 0) {
                levels.round(aim + k, weight + k, d + k, u ? u + k * (kSub + 1) : kNothing, scale, level + k);
            }
            const Floats value = scale * level[k] - minimum;
            const Floats missed = aim[k] - value;
            cost = fma(d[k] * missed, missed, cost);
            error[k] = weight[k] - value;
            for (int j = k + 1; u && j < kColumns; ++j) {
                aim[j] = fma(u[k * kSub + j], error[k], aim[j]);
            }
        }
        return cost;
    }

    // The part of a panel that the columns from `first` on, of its 32, have among themselves, in rows of 32.
    static const float * inner(const float * panel, int64_t first) {
        return panel + first * kSub + first % kSub;
    }

    // Refines 32 columns, one sub-block after the other.
    void refine_columns(int64_t begin) {
        const float * hessian = factor_.hessian_panel(begin / kSub);
        Floats gradients[kSub * kGroups]{}, changes[kSub * kGroups];
        feed_back(hessian, 0, factor_.n(), error_.data(), gradients);
        for (int64_t first = begin; first < begin + kSub; first += kColumns) {
            if (first > begin) {
                feed_back(hessian + begin * kSub, 0, first - begin, changes, gradients);
            }
            for (int group = 0; group < kGroups; ++group) {
                refine_sub_block(first, gradients + (first - begin) * kGroups,
                                 changes + (first - begin) * kGroups, group);
            }
        }
    }

    // changes: of the errors.
    void refine_sub_block(int64_t first, const Floats * gradients, Floats * changes, int group) {
        Floats gradient[kColumns], level[kColumns];
        for (int k = 0; k < kColumns; ++k) {
            gradient[k] = gradients[k * kGroups + group];
            level[k] = level_[size_t((first + k) * kGroups + group)];
        }
        Stored & stored = stored_at(first, group);
        auto & of_sub = stored.of_sub[sub_at(first)];
        refine(format_, inner(factor_.hessian_panel(first / kSub), first), stored, of_sub, gradient, level);
        const Floats scale = format_.value(stored, kScale, of_sub[kScale]);
        const Floats minimum = format_.value(stored, kMinimum, of_sub[kMinimum]);
        for (int k = 0; k < kColumns; ++k) {
            const size_t at = size_t((first + k) * kGroups + group);
            const Floats error = weight_[at] - (scale * level[k] - minimum);
            changes[k * kGroups + group] = error - error_[at];
            level_[at] = level[k];
            error_[at] = error;
        }
    }

    void store(int64_t begin, int64_t n_rows, uint8_t * out) {
        const int64_t row_bytes = factor_.n() / kSuper * Format::kBytes;
        const int64_t block = factor_.order[size_t(begin)] / kSuper;
        for (int group = 0; group < kGroups; ++group) {
            Codes codes[kSuper / kSub];
            for (int k = 0; k < kSuper; ++k) {
                const int at = factor_.order[size_t(begin + k)] % kSuper;
                codes[at / kSub][size_t(at % kSub)] =
                    format_.levels().code(level_[size_t((begin + k) * kGroups + group)]);
            }
            for (int64_t r = group * kLanes; r < std::min<int64_t>(n_rows, (group + 1) * kLanes); ++r) {
                format_.store(stored_at(begin, group), codes, int(r % kLanes),
                              out + r * row_bytes + block * Format::kBytes);
            }
        }
    }

    const Factor & factor_;
    const Format format_;
    std::vector<Stored> stored_;
    std::vector<Floats> error_, level_, weight_, target_;
};

}  // namespace pyquant::gptq
