// IQ2_XXS: points of 8 columns, whose signs are even.
#include "gptq/formats/grid_format.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

struct Layout {
    using Points = Grid<8, true>;
    static constexpr ggml_type kType = GGML_TYPE_IQ2_XXS;
    static constexpr int kPoints = 256, kColumns = 32;
    static constexpr int kBytes = 2 + 64;
    static constexpr float kUnit = 0.25f;

    static void pack(const GridBlock & block, uint8_t * out) {
        for (int sub = 0; sub < 8; ++sub) {
            std::copy_n(block.points + 4 * sub, 4, out + 8 * sub);
            const uint32_t word = signs_and_factor(block, sub);
            std::memcpy(out + 8 * sub + 4, &word, 4);
        }
    }
};

const Registration iq2_xxs(Layout::kType, GridFormat<Layout>());

}  // namespace
}  // namespace pyquant::gptq
