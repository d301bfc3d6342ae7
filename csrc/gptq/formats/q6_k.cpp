// Q6_K: weight = code * scale, codes of 6 bits and factors of 8.
#include <cstring>

#include "gptq/formats/signed_factors.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

class Q6KFormat : public SignedFactors<6, 8, 3> {
public:
    static constexpr int kBytes = 128 + 64 + 16 + 2;

    void store(const Stored & stored, const Codes * codes, int row, uint8_t * out) const {
        for (int half = 0; half < 2; ++half) {  // 128 columns each
            uint8_t * low = out + 64 * half;
            uint8_t * high = out + 128 + kSub * half;
            for (int j = 0; j < kSub; ++j) {
                int code[4];
                for (int part = 0; part < 4; ++part) {
                    code[part] = codes[4 * half + part][size_t(j)][row];
                }
                low[j] = uint8_t((code[0] & 15) | (code[2] & 15) << 4);
                low[j + kSub] = uint8_t((code[1] & 15) | (code[3] & 15) << 4);
                high[j] = uint8_t(code[0] >> 4 | code[1] >> 4 << 2 | code[2] >> 4 << 4 | code[3] >> 4 << 6);
            }
        }
        for (int sub = 0; sub < Stored::kSubs; ++sub) {
            out[192 + sub] = uint8_t(int8_t(stored.of_sub[sub][kScale][row]));
        }
        const uint16_t d = kernels::float_to_half(stored.whole[kScale][row]);
        std::memcpy(out + 208, &d, sizeof d);
    }
};

const Registration q6_k(GGML_TYPE_Q6_K, Q6KFormat());

}  // namespace
}  // namespace pyquant::gptq
