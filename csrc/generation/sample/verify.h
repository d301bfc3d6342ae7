// Verification of a drafted token, so that what comes has the target's distribution.
#pragma once

#include "generation/sample/draw.h"

namespace pyquant::sample {

struct Verified {
    bool accepted;
    int32_t token;  // the drafted one, or the one that comes in its place
    double log_p;   // log of its probability with the target, of all tokens at temperature 1; in nats
};

// Verifies as Leviathan et al. ("Fast Inference from Transformers via Speculative Decoding", 2023) do: a
// token drawn from the draft's distribution q is accepted with probability min(1, p / q), where p is the
// target's; else one is drawn from max(p - q, 0). Settings and mask apply to both alike. target, draft:
// (n_vocab,) logits; draft may be null: then the draft had no choice, q(token) is 1. mask: (ceil(n_vocab /
// 32),) or null; it allows the token. uniform: two numbers in [0, 1), for the test and the draw. The
// temperature is not 0. Logits that are not numbers give a log_p that is NaN.
Verified verify(const float * target, const float * draft, const int32_t * mask, int64_t n_vocab,
                const Settings & settings, int32_t token, const double * uniform);

}  // namespace pyquant::sample
