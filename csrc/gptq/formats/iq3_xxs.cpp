// IQ3_XXS: points of 4 columns, whose signs are even in each 8.
#include "gptq/formats/grid_format.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

struct Layout {
    using Points = Grid<4, true>;
    static constexpr ggml_type kType = GGML_TYPE_IQ3_XXS;
    static constexpr int kPoints = 256, kColumns = 32;
    static constexpr int kBytes = 2 + 64 + 32;
    static constexpr float kUnit = 0.5f;

    static void pack(const GridBlock & block, uint8_t * out) {
        std::copy_n(block.points, 64, out);
        for (int sub = 0; sub < 8; ++sub) {
            const uint32_t word = signs_and_factor(block, sub);
            std::memcpy(out + 64 + 4 * sub, &word, 4);
        }
    }
};

const Registration iq3_xxs(Layout::kType, GridFormat<Layout>());

}  // namespace
}  // namespace pyquant::gptq
