// Descent from codes that were found one after the other: what was settled early could not know of the
// errors that came after it. A sub-block's scale, its minimum and then each of its levels in turn are
// moved to where e H e^T is least with everything else as it is, so that none of these steps adds to it.
#pragma once

#include "gptq/format.h"

namespace pyquant::gptq {

// Moves the scale (or the minimum) along the gradient, if the nearest that can be stored is better.
template <class Format>
void refit(const Format & format, const float * h, const typename Format::Stored & stored, Part part,
           Floats & of_sub, Floats * gradient, const Floats * level) {
    constexpr int kColumns = Format::Stored::kColumns;
    Floats along[kColumns];  // how values move with it
    for (int k = 0; k < kColumns; ++k) {
        along[k] = part == kScale ? level[k] : all(-1.0f);
    }
    Floats moved[kColumns], slope{}, curvature{};
    for (int k = 0; k < kColumns; ++k) {
        moved[k] = Floats{};
        for (int j = 0; j < kColumns; ++j) {
            moved[k] = fma(h[j * kSub + k], along[j], moved[k]);
        }
        slope = fma(along[k], gradient[k], slope);
        curvature = fma(along[k], moved[k], curvature);
    }
    const Floats value = format.value(stored, part, of_sub);
    const Floats wanted = format.representable(stored, part, value + slope * inverse(curvature));
    const Floats step = format.value(stored, part, wanted) - value;
    const Ints better = step * (2 * slope - step * curvature) > 0;
    of_sub = better ? wanted : of_sub;
    const Floats taken = better ? step : Floats{};
    for (int k = 0; k < kColumns; ++k) {
        gradient[k] = fma(-taken, moved[k], gradient[k]);
    }
}

// h: of the sub-block's n columns, (n, n) with rows of 32; of_sub: what is stored for it; gradient: (n), e H;
// level: (n).
template <class Format>
void refine(const Format & format, const float * h, const typename Format::Stored & stored, Floats * of_sub,
            Floats * gradient, Floats * level) {
    constexpr int kColumns = Format::Stored::kColumns;
    for (int part = 0; part < Format::kFree; ++part) {
        refit(format, h, stored, Part(part), of_sub[part], gradient, level);
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
