// The values that the codes of IQ4_NL and IQ4_XS stand for.
#pragma once

#include "gptq/levels.h"

namespace pyquant::gptq {

inline TableLevels iq4_levels() {
    static constexpr int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
    static constexpr uint8_t codes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return TableLevels(values, codes, 16);
}

}  // namespace pyquant::gptq
