// IQ4_XS: super-blocks of 256 columns with an fp16 scale, and a factor of -32..31 on it for each 32.
#include <cstring>

#include "gptq/formats/iq4_levels.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

class Iq4XsFormat {
public:
    using Stored = Scales<8>;
    static constexpr int kBytes = 2 + 2 + Stored::kSubs / 2 + Stored::kSubs * kSub / 2;
    static constexpr int kFree = 1;

    const TableLevels & levels() const { return levels_; }

    void open(const Floats * x, const float * w, Stored & stored) const {
        Floats extreme{};
        for (int sub = 0; sub < Stored::kSubs; ++sub) {
            const Floats scale = search_scale(x + sub * kSub, w + sub * kSub, levels_);
            extreme = magnitude(scale) > magnitude(extreme) ? scale : extreme;
        }
        stored.whole[kScale] = as_halves(extreme / -32.0f);
    }

    void trials(const Stored & stored, const Floats * x, const float * w, Trials & trials) const {
        const Floats factor = nearest(search_scale(x, w, levels_) * inverse(stored.whole[kScale]));
        static constexpr float steps[] = {0, -1, 1, -2, 2};
        trials.n = 5;
        for (int t = 0; t < trials.n; ++t) {
            trials.stored[t][kScale] = within(factor + steps[t]);
        }
    }

    Floats value(const Stored & stored, Part part, Floats factor) const {
        return part == kScale ? stored.whole[kScale] * factor : Floats{};
    }

    Floats representable(const Stored & stored, Part, Floats scale) const {
        return within(nearest(scale * inverse(stored.whole[kScale])));
    }

    void store(const Stored & stored, const Codes * codes, int row, uint8_t * out) const {
        const uint16_t d = kernels::float_to_half(stored.whole[kScale][row]);
        uint16_t high = 0;
        uint8_t low[Stored::kSubs / 2] = {};
        for (int sub = 0; sub < Stored::kSubs; ++sub) {
            const int factor = int(stored.of_sub[sub][kScale][row]) + 32;
            low[sub / 2] = uint8_t(low[sub / 2] | (factor & 15) << 4 * (sub % 2));
            high = uint16_t(high | (factor >> 4) << 2 * sub);
        }
        std::memcpy(out, &d, 2);
        std::memcpy(out + 2, &high, 2);
        std::memcpy(out + 4, low, sizeof low);
        for (int sub = 0; sub < Stored::kSubs; ++sub) {
            store_nibbles(codes[sub], row, out + 4 + sizeof low + sub * kSub / 2);
        }
    }

private:
    static Floats within(Floats factor) { return minimum(maximum(factor, all(-32.0f)), all(31.0f)); }

    TableLevels levels_ = iq4_levels();
};

const Registration iq4_xs(GGML_TYPE_IQ4_XS, Iq4XsFormat());

}  // namespace
}  // namespace pyquant::gptq
