// Rounding of rows in which every column makes up for the errors of those before it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "compensate/factor.h"
#include "compensate/formats.h"

namespace pyquant {

inline constexpr int kRows = 32;  // that share what is read of the factor
inline constexpr int kGroups = kRows / kLanes;

// target[c] += sum over j in [begin, end) of error[j] * u[j][c], for 32 columns and kRows rows, in the
// order of j. u: a panel; error: (end, kRows), target: (32, kRows).
void feed_back(const float * u, int64_t begin, int64_t end, const Floats * error, Floats * target);

template <class Format>
class Encoder {
public:
    Encoder(const Factor & factor, const Format & format)
        : factor_(factor), formats_(kGroups, format), error_(size_t(factor.n() * kGroups)),
          weight_(error_.size()), target_(size_t(Format::kSuper * kGroups)) {}

    // x: n_rows rows, at most kRows; out: the same rows, stored.
    void encode(const float * x, int64_t n_rows, uint8_t * out) {
        const int64_t n = factor_.n();
        for (int64_t k = 0; k < n; ++k) {
            float * lanes = reinterpret_cast<float *>(&weight_[size_t(k * kGroups)]);
            for (int64_t r = 0; r < kRows; ++r) {
                lanes[r] = r < n_rows ? x[r * n + factor_.order[size_t(k)]] : 0.0f;
            }
        }
        const int64_t row_bytes = n / Format::kSuper * Format::kBytes;
        for (int64_t begin = 0; begin < n; begin += Format::kSuper) {
            super_block(begin);
            const int64_t block = factor_.order[size_t(begin)] / Format::kSuper;
            for (int64_t r = 0; r < n_rows; ++r) {
                formats_[size_t(r / kLanes)].store(int(r % kLanes), out + r * row_bytes + block * Format::kBytes);
            }
        }
    }

private:
    void super_block(int64_t begin) {
        constexpr int n_subs = Format::kSuper / kSub;
        std::copy_n(&weight_[size_t(begin * kGroups)], target_.size(), target_.begin());
        for (int sub = 0; sub < n_subs && factor_.passes_on(); ++sub) {
            feed_back(factor_.panel(begin / kSub + sub), 0, begin, error_.data(), &target_[size_t(sub * kSub * kGroups)]);
        }
        // A format looks at the columns in the order in which they are stored.
        Floats stored[Format::kSuper];
        float weights[Format::kSuper];
        if (n_subs > 1) {
            for (int group = 0; group < kGroups; ++group) {
                for (int k = 0; k < Format::kSuper; ++k) {
                    const int at = factor_.order[size_t(begin + k)] % Format::kSuper;
                    stored[at] = target_[size_t(k * kGroups + group)];
                    weights[at] = factor_.diagonal[size_t(begin + k)];
                }
                formats_[size_t(group)].open(stored, weights);
            }
        }
        for (int sub = 0; sub < n_subs; ++sub) {
            const int64_t first = begin + sub * kSub;
            Floats * target = &target_[size_t(sub * kSub * kGroups)];
            if (factor_.passes_on()) {
                feed_back(factor_.panel(first / kSub), begin, first, error_.data(), target);
            }
            for (int group = 0; group < kGroups; ++group) {
                sub_block(first, target, group);
            }
        }
    }

    // The scale whose codes, found with errors passed on within the sub-block, cost least.
    void sub_block(int64_t first, const Floats * target, int group) {
        Format & format = formats_[size_t(group)];
        Floats weight[kSub], aim[kSub];
        for (int k = 0; k < kSub; ++k) {
            weight[k] = weight_[size_t((first + k) * kGroups + group)];
            aim[k] = target[k * kGroups + group];
        }
        const float * d = &factor_.diagonal[size_t(first)];
        const float * u = factor_.passes_on() ? factor_.panel(first / kSub) + first * kSub : nullptr;
        const int at = factor_.order[size_t(first)] % Format::kSuper / kSub;
        Trials trials;
        format.scales(at, aim, d, trials);
        Floats least = all(3.0e38f), best[kSub]{}, level[kSub], error[kSub];
        Ints taken{};
        Floats levels[kSub]{};
        const int n_trials = u ? trials.n : std::min(trials.n, kTrialsAlone);
        for (int t = 0; t < n_trials; ++t) {
            const Floats cost = attempt(format.levels(), weight, aim, u, d, trials.scale[t], trials.minimum[t], error, level);
            const Ints better = cost < least;
            least = better ? cost : least;
            taken = better ? Ints{} + t : taken;
            for (int k = 0; k < kSub; ++k) {
                best[k] = better ? error[k] : best[k];
                levels[k] = better ? level[k] : levels[k];
            }
        }
        Floats stored[kSub];
        for (int k = 0; k < kSub; ++k) {
            error_[size_t((first + k) * kGroups + group)] = best[k];
            stored[factor_.order[size_t(first + k)] % kSub] = levels[k];
        }
        format.take(at, taken, stored);
    }

    template <class Levels>
    static Floats attempt(const Levels & levels, const Floats * weight, const Floats * target, const float * u,
                          const float * d, Floats scale, Floats minimum, Floats * error, Floats * level) {
        Floats aim[kSub];
        std::copy_n(target, kSub, aim);
        const Floats inv = inverse(scale);
        Floats cost{};
        for (int k = 0; k < kSub; ++k) {
            level[k] = levels.round((aim[k] + minimum) * inv);
            const Floats value = scale * level[k] - minimum;
            const Floats missed = aim[k] - value;
            cost += d[k] * (missed * missed);
            error[k] = weight[k] - value;
            for (int j = k + 1; u && j < kSub; ++j) {
                aim[j] += error[k] * u[k * kSub + j];
            }
        }
        return cost;
    }

    const Factor & factor_;
    std::vector<Format> formats_;
    std::vector<Floats> error_, weight_, target_;
};

}  // namespace pyquant
