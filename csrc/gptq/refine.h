// Descent from codes that were found one after the other: what was settled early could not know of the
// errors that came after it. A sub-block's scale and minimum and then each of its levels in turn are
// moved to where e H e^T is least with everything else as it is, so that none of these steps adds to it.
#pragma once

#include "gptq/format.h"

namespace pyquant::gptq {

// Moves the scale by x, and a minimum with it by y, if what can be stored near the best of both is better:
// e H e^T falls by 2 (slope[0] x + slope[1] y) - (curvature[0] x^2 + 2 both x y + curvature[1] y^2).
template <class Format>
void refit(const Format & format, const float * h, const typename Format::Stored & stored, Floats * of_sub,
           Floats * gradient, const Floats * level) {
    constexpr int kColumns = Format::Stored::kColumns, kFree = Format::kFree;
    Floats along[kFree][kColumns];  // how values move with each
    Floats moved[kFree][kColumns], slope[kFree]{}, curvature[kFree]{}, both{};
    for (int part = 0; part < kFree; ++part) {
        for (int k = 0; k < kColumns; ++k) {
            along[part][k] = part == kScale ? level[k] : all(-1.0f);
        }
        for (int k = 0; k < kColumns; ++k) {
            moved[part][k] = Floats{};
            for (int j = 0; j < kColumns; ++j) {
                moved[part][k] = fma(h[j * kSub + k], along[part][j], moved[part][k]);
            }
            slope[part] = fma(along[part][k], gradient[k], slope[part]);
            curvature[part] = fma(along[part][k], moved[part][k], curvature[part]);
            if (part == kMinimum) {
                both = fma(along[kScale][k], moved[part][k], both);
            }
        }
    }
    Floats nearest_stored[kFree], step[kFree];
    const auto take = [&](Part part, Floats wanted) {
        const Floats value = format.value(stored, part, of_sub[part]);
        nearest_stored[part] = format.representable(stored, part, value + wanted);
        step[part] = format.value(stored, part, nearest_stored[part]) - value;
    };
    Floats wanted = slope[kScale] * inverse(curvature[kScale]);
    if constexpr (kFree == 2) {
        const Floats determinant = curvature[kScale] * curvature[kMinimum] - both * both;
        const Floats together =
            (curvature[kMinimum] * slope[kScale] - both * slope[kMinimum]) * inverse(determinant);
        wanted = determinant > 0 ? together : wanted;
    }
    take(kScale, wanted);
    Floats falls = step[kScale] * (2 * slope[kScale] - step[kScale] * curvature[kScale]);
    if constexpr (kFree == 2) {
        take(kMinimum, (slope[kMinimum] - both * step[kScale]) * inverse(curvature[kMinimum]));
        falls = falls + step[kMinimum] * (2 * slope[kMinimum] - step[kMinimum] * curvature[kMinimum]) -
                2 * both * step[kScale] * step[kMinimum];
    }
    const Ints better = falls > 0;
    for (int part = 0; part < kFree; ++part) {
        of_sub[part] = better ? nearest_stored[part] : of_sub[part];
        const Floats taken = better ? step[part] : Floats{};
        for (int k = 0; k < kColumns; ++k) {
            gradient[k] = fma(-taken, moved[part][k], gradient[k]);
        }
    }
}

// h: of the sub-block's n columns, (n, n) with rows of 32; of_sub: what is stored for it; gradient: (n), e H;
// level: (n).
template <class Format>
void refine(const Format & format, const float * h, const typename Format::Stored & stored, Floats * of_sub,
            Floats * gradient, Floats * level) {
    constexpr int kColumns = Format::Stored::kColumns;
    if constexpr (Format::kFree > 0) {
        refit(format, h, stored, of_sub, gradient, level);
    }
    const Floats scale = format.value(stored, kScale, of_sub[kScale]);
    const Floats minimum = format.value(stored, kMinimum, of_sub[kMinimum]);
    if constexpr (LevelsOf<Format>::kGroup > 1) {
        for (int k = 0; k < kColumns; k += LevelsOf<Format>::kGroup) {
            format.levels().descend(h + k * (kSub + 1), kColumns - k, scale, gradient + k, level + k);
        }
    } else {
        const Floats inv = inverse(scale);
        for (int k = 0; k < kColumns; ++k) {
            const Floats value = scale * level[k] - minimum;
            const Floats aim = value + gradient[k] * (1.0f / h[k * kSub + k]);
            level[k] = format.levels().round((aim + minimum) * inv);
            const Floats step = value - (scale * level[k] - minimum);
            for (int j = k + 1; j < kColumns; ++j) {
                gradient[j] = fma(h[k * kSub + j], step, gradient[j]);
            }
        }
    }
}

}  // namespace pyquant::gptq
