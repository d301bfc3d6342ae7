#include "generation/sample/truncate.h"

#include <algorithm>

#include "generation/sample/candidates.h"

namespace pyquant::sample {
namespace {

constexpr size_t kFew = 4096;  // tokens that are quicker looked at one by one

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
