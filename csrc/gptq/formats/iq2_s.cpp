// IQ2_S: points of 8 columns.
#include "gptq/formats/grid_format.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

struct Layout {
    using Points = Grid<8, false>;
    static constexpr ggml_type kType = GGML_TYPE_IQ2_S;
    static constexpr int kPoints = 1024, kColumns = 16;
    static constexpr int kBytes = 2 + 32 + 32 + 8 + 8;
    static constexpr float kUnit = 0.25f;

    static void pack(const GridBlock & block, uint8_t * out) {
        uint8_t *low = out, *high = low + 32 + 32;
        std::memset(high, 0, 8);
        for (int i = 0; i < 32; ++i) {
            low[i] = uint8_t(block.points[i]);
            high[i / 4] = uint8_t(high[i / 4] | block.points[i] >> 8 << 2 * (i % 4));
        }
        std::memcpy(low + 32, block.minuses, 32);
        pack_factors(block, 16, high + 8);
    }
};

const Registration iq2_s(Layout::kType, GridFormat<Layout>());

}  // namespace
}  // namespace pyquant::gptq
