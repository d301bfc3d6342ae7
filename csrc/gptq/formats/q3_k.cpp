// Q3_K: weight = code * scale, codes of 3 bits and factors of 6.
#include <cstring>

#include "gptq/formats/code_layouts.h"
#include "gptq/formats/signed_factors.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

class Q3KFormat : public SignedFactors<3, 6, 1> {
public:
    static constexpr int kBytes = 32 + 64 + 12 + 2;

    void store(const Stored & stored, const Codes * codes, int row, uint8_t * out) const {
        std::memset(out, 0, kBytes);
        for (int block = 0; block < Stored::kSuper / kSub; ++block) {
            for (int j = 0; j < kSub; ++j) {
                out[j] = uint8_t(out[j] | codes[block][size_t(j)][row] >> 2 << block);
            }
        }
        store_two_bits(codes, row, out + 32);
        uint8_t * low = out + 96;  // 4 bits of each factor, then the other 2
        uint8_t * high = low + 8;
        for (int sub = 0; sub < Stored::kSubs; ++sub) {
            const int factor = int(stored.of_sub[sub][kScale][row]) + 32;
            low[sub % 8] = uint8_t(low[sub % 8] | (factor & 15) << 4 * (sub / 8));
            high[sub % 4] = uint8_t(high[sub % 4] | factor >> 4 << 2 * (sub / 4));
        }
        const uint16_t d = kernels::float_to_half(stored.whole[kScale][row]);
        std::memcpy(out + 108, &d, sizeof d);
    }
};

const Registration q3_k(GGML_TYPE_Q3_K, Q3KFormat());

}  // namespace
}  // namespace pyquant::gptq
