// IQ3_S: points of 4 columns.
#include "gptq/formats/grid_format.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

struct Layout {
    using Points = Grid<4, false>;
    static constexpr ggml_type kType = GGML_TYPE_IQ3_S;
    static constexpr int kPoints = 512, kColumns = 32;
    static constexpr int kBytes = 2 + 64 + 8 + 32 + 4;
    static constexpr float kUnit = 2;

    static void pack(const GridBlock & block, uint8_t * out) {
        uint8_t *low = out, *high = low + 64;
        std::memset(high, 0, 8);
        for (int i = 0; i < 64; ++i) {
            low[i] = uint8_t(block.points[i]);
            high[i / 8] = uint8_t(high[i / 8] | block.points[i] >> 8 << i % 8);
        }
        std::memcpy(high + 8, block.minuses, 32);
        pack_factors(block, 8, high + 8 + 32);
    }
};

const Registration iq3_s(Layout::kType, GridFormat<Layout>());

}  // namespace
}  // namespace pyquant::gptq
