// Q2_K: weight = code * scale - minimum. Sub-blocks of 16 columns, codes of 2 bits, factors of 4. The scales
// of scales and of minima are searched for like any scale.
#include <cstring>

#include "gptq/formats/code_layouts.h"
#include "gptq/formats/unsigned_factors.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

class Q2KFormat : public UnsignedFactors<2, 16, 4> {
public:
    static constexpr int kBytes = 16 + 64 + 2 + 2;

    void open(const Floats * x, const float * w, Stored & stored) const {
        Floats scales[Stored::kSubs], minima[Stored::kSubs];
        float weights[Stored::kSubs] = {};
        for (int sub = 0; sub < Stored::kSubs; ++sub) {
            const int first = sub * Stored::kColumns;
            const auto best = search_scale_and_minimum<Stored::kColumns>(x + first, w + first, kHighest);
            scales[sub] = best.scale;
            minima[sub] = best.minimum;
            for (int k = 0; k < Stored::kColumns; ++k) {
                weights[sub] += w[first + k];
            }
        }
        stored.whole[kScale] = as_halves(search_scale<Stored::kSubs>(scales, weights, factors_));
        stored.whole[kMinimum] = as_halves(search_scale<Stored::kSubs>(minima, weights, factors_));
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
    IntegerLevels factors_{0, kHighestFactor, 0};
};

const Registration q2_k(GGML_TYPE_Q2_K, Q2KFormat());

}  // namespace
}  // namespace pyquant::gptq
