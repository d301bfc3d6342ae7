// I-types of 2 and 3 bits: super-blocks of 256 columns with an fp16 scale, and a factor of 4 bits on it for
// each 32 or 16; for each 4 or 8 the number of a point, which has the levels' magnitudes, and signs.
#pragma once

#include <cstdlib>
#include <cstring>
#include <vector>

#include "gptq/format.h"
#include "gptq/grid.h"
#include "stream/codec.h"

namespace pyquant::gptq {

// What is stored of a super-block.
struct GridBlock {
    uint16_t scale;
    uint8_t factors[16];
    uint16_t points[64];
    uint8_t minuses[32];  // a bit for each column
};

// A layout has Points (of a Grid), kPoints of them, kColumns that share a factor, kBytes of a block, and
// `pack`, which makes those behind the scale. A weight is scale * (factor + 1/2) * kUnit * level.
template <class Layout>
class GridFormat {
public:
    using Points = typename Layout::Points;
    using Stored = Scales<256 / Layout::kColumns, Layout::kColumns>;
    static constexpr int kBytes = Layout::kBytes;
    static constexpr int kFree = 1;

    const Points & levels() const { return tables().points; }

    void open(const Floats * x, const float * w, Stored & stored) const {
        Floats largest{};
        for (int first = 0; first < Stored::kSuper; first += Stored::kColumns) {
            largest = maximum(largest, search(x + first, w + first));
        }
        stored.whole[kScale] = as_halves(largest * (1 / (15.5f * Layout::kUnit)));
    }

    void trials(const Stored & stored, const Floats * x, const float * w, Trials & trials) const {
        const Floats factor = representable(stored, kScale, search(x, w));
        static constexpr float steps[] = {0, 1, -1, 2, -2};
        trials.n = 5;
        for (int t = 0; t < trials.n; ++t) {
            trials.stored[t][kScale] = within(factor + steps[t]);
        }
    }

    Floats value(const Stored & stored, Part part, Floats factor) const {
        return part == kScale ? stored.whole[kScale] * (factor + 0.5f) * Layout::kUnit : Floats{};
    }

    Floats representable(const Stored & stored, Part, Floats scale) const {
        const Floats units = scale * inverse(stored.whole[kScale] * Layout::kUnit);
        return within(nearest(minimum(units, all(16)) - 0.5f));
    }

    void store(const Stored & stored, const Codes * codes, int row, uint8_t * out) const {
        GridBlock block{};
        block.scale = kernels::float_to_half(stored.whole[kScale][row]);
        for (int sub = 0; sub < Stored::kSubs; ++sub) {
            block.factors[sub] = uint8_t(stored.of_sub[sub][kScale][row]);
        }
        typename Points::Point point;
        for (int k = 0; k < Stored::kSuper; ++k) {
            const int level = codes[k / kSub][size_t(k % kSub)][row];
            block.minuses[k / 8] = uint8_t(block.minuses[k / 8] | (level < 0) << k % 8);
            point[size_t(k % Points::kPoint)] = uint8_t(std::abs(level));
            if ((k + 1) % Points::kPoint == 0) {
                block.points[k / Points::kPoint] = levels().number(point);
            }
        }
        pack(block, out);
    }

private:
    struct Tables {
        Points points = read();
        TableLevels of_one = points.of_one();
    };

    static const Tables & tables() {
        static const Tables made;
        return made;
    }

    static void pack(const GridBlock & block, uint8_t * out) {
        std::memcpy(out, &block.scale, sizeof block.scale);
        Layout::pack(block, out + sizeof block.scale);
    }

    // The points, as GGML decodes them.
    static Points read() {
        std::vector<typename Points::Point> points(Layout::kPoints);
        const auto decoder = stream::ggml_decoder(Layout::kType);
        for (size_t number = 0; number < points.size(); ++number) {
            GridBlock block{};
            block.scale = kernels::float_to_half(2 / Layout::kUnit);  // by half a unit 1
            block.points[0] = uint16_t(number);
            uint8_t bytes[kBytes];
            pack(block, bytes);
            float values[Stored::kSuper];
            decoder->decode(bytes, 1, Stored::kSuper, values);
            std::copy_n(values, Points::kPoint, points[number].begin());
        }
        return Points(points);
    }

    // The scale, if each level could be had by itself.
    static Floats search(const Floats * x, const float * w) {
        return magnitude(search_scale<Stored::kColumns>(x, w, tables().of_one));
    }

    static Floats within(Floats factor) { return minimum(maximum(factor, all(0.0f)), all(15.0f)); }
};

// n factors, 4 bits each.
inline void pack_factors(const GridBlock & block, int n, uint8_t * out) {
    for (int i = 0; i < n; i += 2) {
        out[i / 2] = uint8_t(block.factors[i] | block.factors[i + 1] << 4);
    }
}

// Signs and the factor of 32 columns in a word: an eighth sign follows from the seven before it.
inline uint32_t signs_and_factor(const GridBlock & block, int sub) {
    uint32_t word = uint32_t(block.factors[sub]) << 28;
    for (int i = 0; i < 4; ++i) {
        word |= uint32_t(block.minuses[4 * sub + i] & 127) << 7 * i;
    }
    return word;
}

}  // namespace pyquant::gptq
