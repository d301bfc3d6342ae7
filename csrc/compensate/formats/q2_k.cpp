// Q2_K: weight = code * scale - minimum. Super-blocks of 256 columns with an fp16 scale of scales and one of
// minima, and a factor of 0..15 on either for each 16.
#include <cstring>

#include "compensate/compensated_encoder.h"
#include "compensate/formats/code_layouts.h"

namespace pyquant::compensate {
namespace {

class Q2KFormat {
public:
    using Stored = Scales<16, 16>;
    static constexpr int kBytes = 16 + 64 + 2 + 2;
    static constexpr int kFree = 2;

    const IntegerLevels & levels() const { return levels_; }

    void open(const Floats * x, const float * w, Stored & stored) const {
        Floats scales[Stored::kSubs], minima[Stored::kSubs];
        float weights[Stored::kSubs] = {};
        for (int sub = 0; sub < Stored::kSubs; ++sub) {
            const int first = sub * Stored::kColumns;
            const auto best =
                search_scale_and_minimum<Stored::kColumns>(x + first, w + first, levels_.highest);
            scales[sub] = best.scale;
            minima[sub] = best.minimum;
            for (int k = 0; k < Stored::kColumns; ++k) {
                weights[sub] += w[first + k];
            }
        }
        stored.whole[kScale] = as_halves(search_scale<Stored::kSubs>(scales, weights, factors_));
        stored.whole[kMinimum] = as_halves(search_scale<Stored::kSubs>(minima, weights, factors_));
    }

    void trials(const Stored & stored, const Floats * x, const float * w, Trials & trials) const {
        const auto best = search_scale_and_minimum<Stored::kColumns>(x, w, levels_.highest);
        const Floats scale = representable(stored, kScale, best.scale);
        const Floats least = representable(stored, kMinimum, best.minimum);
        static constexpr float steps[][2] = {{0, 0}, {1, 0},   {-1, 0}, {0, 1}, {0, -1},
                                             {1, 1}, {-1, -1}, {1, -1}, {-1, 1}};
        trials.n = 9;
        for (int t = 0; t < trials.n; ++t) {
            trials.stored[t][kScale] = within(scale + steps[t][0]);
            trials.stored[t][kMinimum] = within(least + steps[t][1]);
        }
    }

    Floats value(const Stored & stored, Part part, Floats factor) const {
        return stored.whole[part] * factor;
    }

    Floats representable(const Stored & stored, Part part, Floats value) const {
        return within(nearest(minimum(value * inverse(stored.whole[part]), all(factors_.highest))));
    }

    void store(const Stored & stored, const Codes * codes, int row, uint8_t * out) const {
        for (int sub = 0; sub < Stored::kSubs; ++sub) {
            const auto & factor = stored.of_sub[sub];
            out[sub] = uint8_t(int(factor[kScale][row]) | int(factor[kMinimum][row]) << 4);
        }
        std::memset(out + 16, 0, 64);
        store_two_bits(codes, row, out + 16);
        for (const Part part : {kScale, kMinimum}) {
            const uint16_t whole = kernels::float_to_half(stored.whole[part][row]);
            std::memcpy(out + 80 + 2 * part, &whole, sizeof whole);
        }
    }

private:
    Floats within(Floats factor) const { return minimum(maximum(factor, all(0.0f)), all(factors_.highest)); }

    IntegerLevels levels_{0, 3, 0};
    IntegerLevels factors_{0, 15, 0};
};

const Registration q2_k(GGML_TYPE_Q2_K, Q2KFormat());

}  // namespace
}  // namespace pyquant::compensate
