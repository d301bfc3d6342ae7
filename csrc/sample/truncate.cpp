#include "sample/truncate.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace pyquant::sample {
namespace {

constexpr float kNone = std::numeric_limits<float>::min();  // weights below it are 0
constexpr float kLightest =
    1e-6f;                     // beside the largest: so light a weight is looked for before all are taken
constexpr size_t kFew = 4096;  // tokens that are quicker looked at one by one

constexpr int kMostAsked = 256;  // tokens that a keeper is asked about: some more take as long as a mask

// A token that may be left. They are ordered: the likeliest first, of equally likely ones the first in the
// vocabulary.
struct Candidate {
    float logit;  // beside its token, as to sort by what lies elsewhere takes longer
    int32_t token;

    bool operator<(const Candidate & other) const {
        return logit != other.logit ? logit > other.logit : token < other.token;
    }
};
using Candidates = std::vector<Candidate>;

// Tokens of at least this weight, but below another one, in the vocabulary's order.
Candidates at_least(const float * logits, const Weights & weights, float smallest,
                    float below = std::numeric_limits<float>::infinity()) {
    Candidates tokens;
    for (size_t g = 0; g < weights.peaks.size(); ++g) {
        if (weights.peaks[g] < smallest) {
            continue;
        }
        for (size_t begin = g * kGroup; begin < (g + 1) * kGroup; begin += kLanes) {
            const float * values = weights.values.get() + begin;
            unsigned any = 0;  // of so many tokens, that one by one are looked at only where it is worth it
            for (int l = 0; l < kLanes; ++l) {
                any |= unsigned(values[l] >= smallest);
            }
            for (int l = 0; any != 0 && l < kLanes; ++l) {
                if (values[l] >= smallest && values[l] < below) {
                    tokens.push_back({logits[begin + size_t(l)], int32_t(begin) + l});
                }
            }
        }
    }
    return tokens;
}

double sum_of(const Candidates & tokens, const Weights & weights) {
    return std::accumulate(tokens.begin(), tokens.end(), 0.0, [&](double sum, const Candidate & each) {
        return sum + double(weights.values[each.token]);
    });
}

// A weight that at least n tokens reach: those of n groups do that are likeliest. 0: there are fewer groups.
float reached_by(size_t n, const Weights & weights) {
    if (n > weights.peaks.size()) {
        return 0;
    }
    std::vector<float> peaks = weights.peaks;
    const auto last = peaks.begin() + std::ptrdiff_t(n) - 1;
    std::nth_element(peaks.begin(), last, peaks.end(), std::greater<>());
    return *last;
}

// Tokens that hold all that will be left: as few as is cheap to find, for they have to be sorted.
Candidates candidates(const float * logits, const Weights & weights, const Settings & settings) {
    if (settings.top_k > 0) {
        if (const float least = reached_by(size_t(settings.top_k), weights); least >= kNone) {
            return at_least(logits, weights, least);
        }
    }
    constexpr double slack = 1 + 1e-9;  // sums in another order differ by less
    const float largest = weights.largest();
    for (float smallest = 0.25f; smallest > kLightest; smallest /= 4) {
        Candidates tokens = at_least(logits, weights, std::max(kNone, smallest * largest));
        const bool enough = settings.top_k > 0 ? int64_t(tokens.size()) >= settings.top_k
                            : settings.top_p < 1
                                ? sum_of(tokens, weights) >= settings.top_p * weights.total * slack
                                : smallest <= settings.min_p;
        if (enough) {
            return tokens;
        }
    }
    return at_least(logits, weights, kNone);
}

// All tokens that a mask allows and that weigh anything; false: they are not few.
bool few(const float * logits, const Weights & weights, const int32_t * mask, Candidates & tokens) {
    size_t n = 0;
    for (int64_t w = 0; w < mask_words(weights.n_vocab); ++w) {
        for (auto word = uint32_t(mask[w]); word != 0; word &= word - 1) {
            const int32_t token = int32_t(w) * 32 + __builtin_ctz(word);
            if (++n > kFew) {
                return false;
            }
            if (token < weights.n_vocab && weights.values[token] >= kNone) {
                tokens.push_back({logits[token], token});
            }
        }
    }
    return true;
}

// Sorts tokens, and leaves as many as top-k does.
void sort(Candidates & tokens, const Settings & settings) {
    const size_t n = settings.top_k > 0 ? std::min(size_t(settings.top_k), tokens.size()) : tokens.size();
    std::partial_sort(tokens.begin(), tokens.begin() + std::ptrdiff_t(n), tokens.end());
    tokens.resize(n);
}

// What top-p and min-p leave of sorted tokens. total: of the weights of all.
std::vector<int32_t> cut(const Candidates & tokens, const Weights & weights, const Settings & settings,
                         double total) {
    size_t n = tokens.size();
    if (settings.top_p < 1) {
        double share = 0;
        n = 0;
        while (n < tokens.size() && (n == 0 || share < settings.top_p * total)) {
            share += double(weights.values[tokens[n++].token]);
        }
    }
    if (settings.min_p > 0 && n > 0) {
        const float smallest = settings.min_p * weights.values[tokens[0].token];
        size_t kept = 1;
        while (kept < n && weights.values[tokens[kept].token] >= smallest) {
            ++kept;
        }
        n = kept;
    }
    std::vector<int32_t> left;
    for (size_t i = 0; i < n; ++i) {
        left.push_back(tokens[i].token);
    }
    return left;
}

}  // namespace

std::vector<int32_t> truncate(const float * logits, const Weights & weights, const Settings & settings) {
    Candidates tokens = candidates(logits, weights, settings);
    sort(tokens, settings);
    return cut(tokens, weights, settings, settings.top_k > 0 ? sum_of(tokens, weights) : weights.total);
}

std::vector<int32_t> truncate_asking(const float * logits, const Weights & weights, const Settings & settings,
                                     Keeper & keeper) {
    const auto top_k = size_t(settings.top_k);
    Candidates allowed;
    int n_asked = 0;
    const float lightest = std::max(kNone, kLightest * weights.largest());
    // So many that few places need a second look at the weights, though some tokens are refused.
    const float first = reached_by(top_k + top_k / 2, weights);
    float below = std::numeric_limits<float>::infinity();
    for (float least = std::max(first > 0 ? first : weights.largest() / 4, lightest); least >= lightest;
         least /= 4) {
        Candidates tokens = at_least(logits, weights, least, std::exchange(below, least));
        for (auto begin = tokens.begin(); begin != tokens.end();) {
            if (n_asked >= kMostAsked) {
                return {};
            }
            const auto n =
                std::min(tokens.end() - begin, std::ptrdiff_t(std::max<size_t>(8, top_k - allowed.size())));
            std::partial_sort(begin, begin + n, tokens.end());
            std::for_each(begin, begin + n, [&](const Candidate & each) { keeper.expect(each.token); });
            for (const auto end = begin + n; begin != end; ++begin, ++n_asked) {
                if (!keeper.allows(begin->token)) {
                    continue;
                }
                allowed.push_back(*begin);
                if (allowed.size() == top_k) {
                    return cut(allowed, weights, settings, sum_of(allowed, weights));
                }
            }
        }
    }
    return {};
}

std::vector<int32_t> truncate_few(const float * logits, const Weights & weights, const Settings & settings,
                                  const int32_t * mask) {
    Candidates tokens;
    if (!few(logits, weights, mask, tokens)) {
        return {};
    }
    sort(tokens, settings);
    return cut(tokens, weights, settings, sum_of(tokens, weights));
}

}  // namespace pyquant::sample
