// Truncation: the part of a vocabulary that top-k, top-p and min-p leave.
#pragma once

#include <vector>

#include "generation/sample/draw.h"
#include "generation/sample/weights.h"

namespace pyquant::sample {

// The tokens that are left, the most likely first, of equally likely ones the first in the vocabulary.
// logits: (n_vocab,); weights: exp(logit - a constant) of them, 0 where the mask refuses; one is not 0.
std::vector<int32_t> truncate(const float * logits, const Weights & weights, const Settings & settings);

// The same of the tokens that a mask allows, where weights are those of all tokens; nothing where it allows
// many, or none that weighs anything.
std::vector<int32_t> truncate_few(const float * logits, const Weights & weights, const Settings & settings,
                                  const int32_t * mask);

}  // namespace pyquant::sample
