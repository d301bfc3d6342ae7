// MXFP4: blocks of 32 columns, whose scale is a power of two (E8M0).
#include "gptq/formats/fp4.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

// The lowest codes stand for subnormal scales.
class Mxfp4Format : public Fp4Format<Scales<1>, ScaleCodes<0, -1, 2, 254>> {
public:
    static constexpr int kBytes = 1 + kSub / 2;

    void store(const Stored & stored, const Codes * codes, int row, uint8_t * out) const {
        out[0] = uint8_t(stored.of_sub[0][kScale][row]);
        store_nibbles(codes[0], row, out + 1);
    }
};

const Registration mxfp4(GGML_TYPE_MXFP4, Mxfp4Format());

}  // namespace
}  // namespace pyquant::gptq
