// Draws from what truncation leaves of the tokens that a keeper allows, and asks about as few as decide it.
#pragma once

#include "generation/sample/draw.h"
#include "generation/sample/weights.h"

namespace pyquant::sample {

constexpr int32_t kUndecided = -1;

// The token that `draw` gives with the keeper's mask and this number; kUndecided: too many are refused.
// weights: of all tokens, at temperature 1. Settings have a top-k, and a temperature above 0.
//
// Tokens are asked about from the likeliest down. What top-p leaves, and where `uniform` falls in it, depends
// on tokens that were not asked about yet. Their sum of weights lies between that of none and that of all of
// them. A token is drawn as soon as both give the same one: often the first question decides.
int32_t draw_asking(const float * logits, const Weights & weights, const Settings & settings, Keeper & keeper,
                    double uniform);

}  // namespace pyquant::sample
