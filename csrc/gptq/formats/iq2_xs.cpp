// IQ2_XS: points of 8 columns, whose signs are even.
#include "gptq/formats/grid_format.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

struct Layout {
    using Points = Grid<8, true>;
    static constexpr ggml_type kType = GGML_TYPE_IQ2_XS;
    static constexpr int kPoints = 512, kColumns = 16;
    static constexpr int kBytes = 2 + 64 + 8;
    static constexpr float kUnit = 0.25f;

    static void pack(const GridBlock & block, uint8_t * out) {
        for (int i = 0; i < 32; ++i) {
            const uint16_t code = uint16_t(block.points[i] | (block.minuses[i] & 127) << 9);
            std::memcpy(out + 2 * i, &code, 2);
        }
        pack_factors(block, 16, out + 64);
    }
};

const Registration iq2_xs(Layout::kType, GridFormat<Layout>());

}  // namespace
}  // namespace pyquant::gptq
