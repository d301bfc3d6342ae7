// NVFP4: blocks of 64 columns with a scale of the type UE4M3 for each 16.
#include "gptq/formats/fp4.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

// From 2^-9 to 448, both halved; 127 is no number, and a scale of 0 is of no use.
class Nvfp4Format : public Fp4Format<Scales<4, 16>, ScaleCodes<3, 119, 1, 126>> {
public:
    static constexpr int kBytes = Stored::kSubs + Stored::kSuper / 2;

    void store(const Stored & stored, const Codes * codes, int row, uint8_t * out) const {
        constexpr int kHalf = Stored::kColumns / 2;
        for (int sub = 0; sub < Stored::kSubs; ++sub) {
            out[sub] = uint8_t(stored.of_sub[sub][kScale][row]);
            const auto code = [&](int k) {
                const int column = sub * Stored::kColumns + k;
                return codes[column / kSub][size_t(column % kSub)][row];
            };
            for (int j = 0; j < kHalf; ++j) {
                out[Stored::kSubs + sub * kHalf + j] = uint8_t(code(j) | code(j + kHalf) << 4);
            }
        }
    }
};

const Registration nvfp4(GGML_TYPE_NVFP4, Nvfp4Format());

}  // namespace
}  // namespace pyquant::gptq
