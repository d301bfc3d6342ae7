// One scale for a whole matrix, or for each of its rows, in blocks of Q8_0: integer codes that are meant to
// be entropy-coded.
#include <algorithm>
#include <vector>

#include "gptq/encoders.h"
#include "gptq/formats/code_layouts.h"
#include "gptq/formats/one_scale.h"
#include "gptq/gptq_encoder.h"

namespace pyquant::gptq {
namespace {

constexpr float kFits = 112;            // some room to 127 is left for what is passed on within the block
constexpr float kLargestPower = 32768;  // of two, in fp16

// Blocks whose weights do not fit into int8 by the scale get the first of its doubles by which they do.
class EcsqFormat : public ScaleThenCodes<Bytes> {
public:
    static constexpr int kFree = 0;

    // steps: of each row, or one of all.
    explicit EcsqFormat(const std::vector<uint16_t> & steps) {
        for (const uint16_t step : steps) {
            steps_.push_back(kernels::half_to_float(step));
        }
    }

    const IntegerLevels & levels() const { return levels_; }

    void rows(int64_t first_row, Stored & stored) const {
        for (int row = 0; row < kLanes; ++row) {
            stored.whole[kScale][row] = steps_[std::min(size_t(first_row + row), steps_.size() - 1)];
        }
    }

    void trials(const Stored & stored, const Floats * x, const float *, Trials & trials) const {
        Floats largest{};
        for (int k = 0; k < kSub; ++k) {
            largest = maximum(largest, magnitude(x[k]));
        }
        trials.n = 1;
        Floats & scale = trials.stored[0][kScale];
        for (int row = 0; row < kLanes; ++row) {
            scale[row] = stored.whole[kScale][row];
            while (largest[row] > kFits * scale[row] && scale[row] < kLargestPower) {
                scale[row] *= 2;
            }
        }
        scale = as_halves(scale);
    }

    Floats representable(const Stored &, Part, Floats scale) const { return scale; }

private:
    IntegerLevels levels_{-127, 127, 0};
    std::vector<float> steps_;
};

}  // namespace

std::unique_ptr<stream::Encoder> ecsq_encoder(const std::vector<uint16_t> & steps,
                                              std::shared_ptr<const Factor> factor) {
    return make_encoder(GGML_TYPE_Q8_0, stream::ggml_decoder(GGML_TYPE_Q8_0), std::move(factor),
                        EcsqFormat(steps));
}

}  // namespace pyquant::gptq
