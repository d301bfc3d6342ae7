#include "generation/sample/ask.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "generation/sample/candidates.h"

namespace pyquant::sample {
namespace {

constexpr size_t kMostAsked = 256;   // some more take as long as a mask
constexpr size_t kFirstAsked = 4;    // sorted before the first is asked about
constexpr double kSlack = 1 + 1e-4;  // float32 weights, and sums in another order, differ by less

// What is not known yet of the tokens that top-k keeps.
struct Rest {
    size_t n;        // so many at most; 0: all are known
    double weight;   // of all of them at most
    float heaviest;  // of each at most
};

// Allowed tokens, the likeliest first, as far as they are known.
class Allowed {
public:
    Allowed(const Settings & settings, double uniform)
        : settings_(settings),
          uniform_(uniform),
          scale_(scale_of(settings.temperature)) {}

    size_t size() const { return tokens_.size(); }

    void add(const Candidate & token, float weight) {
        if (tokens_.empty()) {
            smallest_ = settings_.min_p * weight;
            n_large_ = std::numeric_limits<size_t>::max();
        } else if (weight < smallest_) {
            n_large_ = std::min(n_large_, size());
        }
        tokens_.push_back(token);
        const float share = kernels::exp_nonpositive((token.logit - tokens_[0].logit) * scale_);
        weights_.push_back(weight + (weights_.empty() ? 0.0 : weights_.back()));
        shares_.push_back(share + (shares_.empty() ? 0.0 : shares_.back()));
    }

    // The token that is drawn whatever the rest is; kUndecided: it depends on it.
    int32_t drawn(const Rest & rest) const {
        if (tokens_.empty()) {
            return kUndecided;
        }
        const double least = weights_.back();
        const size_t place = place_of(least, {0, 0, 0});
        const size_t last = rest.n == 0 ? place : place_of((least + rest.weight) * kSlack, rest);
        return place == last && place < size() ? tokens_[place].token : kUndecided;
    }

private:
    // Where `uniform` falls, where the tokens that top-k keeps weigh so much, and the rest all it may.
    size_t place_of(double total, const Rest & rest) const {
        const size_t n = n_left(total, rest);
        const double shares = n <= size() ? shares_[n - 1] : (shares_.back() + most_shares(rest)) * kSlack;
        return size_t(std::upper_bound(shares_.begin(), shares_.end(), uniform_ * shares) - shares_.begin());
    }

    // How many tokens top-p and min-p leave; more than are known: some of the rest may be.
    size_t n_left(double total, const Rest & rest) const {
        size_t n = size() + (rest.n > 0 && rest.heaviest * kSlack >= double(smallest_));
        if (settings_.top_p < 1) {
            const auto enough = std::lower_bound(weights_.begin(), weights_.end(), settings_.top_p * total);
            n = std::min(n, size_t(enough - weights_.begin()) + 1);
        }
        return std::min(n, n_large_);
    }

    // A token's share is (weight / the first one's weight)^(1 / temperature). Below temperature 1 that is
    // less than without the exponent; above it, shares add up to most where all weights are the same.
    double most_shares(const Rest & rest) const {
        const double first = weights_.front(), n = double(rest.n);
        return scale_ >= 1 ? rest.weight / first : n * std::pow(rest.weight / (n * first), double(scale_));
    }

    const Settings & settings_;
    double uniform_;
    float scale_;
    float smallest_ = 0;  // weight that min-p leaves
    size_t n_large_ = 0;  // tokens before the first one that is too light for min-p
    Candidates tokens_;
    std::vector<double> weights_, shares_;  // of each token and all before it
};

}  // namespace

int32_t draw_asking(const float * logits, const Weights & weights, const Settings & settings, Keeper & keeper,
                    double uniform) {
    const auto top_k = size_t(settings.top_k);
    Allowed allowed(settings, uniform);
    size_t n_asked = 0;
    const float lightest = std::max(kNone, kLightest * weights.largest());
    const float first = reached_by(top_k, weights);
    float below = std::numeric_limits<float>::infinity();
    for (float least = std::max(first > 0 ? first : weights.largest() / 4, lightest); least >= lightest;
         least /= 4) {
        Candidates tokens = at_least(logits, weights, least, std::exchange(below, least));
        double unasked = sum_of(tokens, weights);
        for (auto begin = tokens.begin(); begin != tokens.end();) {
            if (n_asked >= kMostAsked) {
                return kUndecided;
            }
            const auto n = std::min(tokens.end() - begin, std::ptrdiff_t(std::max(kFirstAsked, n_asked)));
            std::partial_sort(begin, begin + n, tokens.end());
            std::for_each(begin, begin + n, [&](const Candidate & each) { keeper.expect(each.token); });
            for (const auto end = begin + n; begin != end; ++n_asked) {
                const Candidate & token = *begin++;
                const float weight = weights.values[token.token];
                unasked = std::max(0.0, unasked - double(weight));
                if (keeper.allows(token.token)) {
                    allowed.add(token, weight);
                }
                const size_t more = top_k - allowed.size(), here = size_t(tokens.end() - begin);
                const double lighter = least * double(more - std::min(more, here));
                if (const int32_t drawn = allowed.drawn({more, unasked + lighter, weight}); drawn >= 0) {
                    return drawn;
                }
            }
        }
    }
    return kUndecided;
}

}  // namespace pyquant::sample
