"""Defaults of dampening: those of least KLD, which is given for others as well.

Dampening is added to the diagonal of a Hessian, in units of the diagonal's mean. The more there is, the
less is trusted to what few tokens say of a direction.
"""

from __future__ import annotations

# GPTQ, every matrix on its own (a model of 5 M weights .0045 / .0070, in-domain / out-of-domain, with 0.3
# .0049 / .0073).
ON_ITS_OWN = 0.03

# Error propagation (the bundled model .0141 / .0197, with 0.03 .0144 / .0213, with 1 .0151 / .0203).
PROPAGATED = 0.3

# ecsq with error propagation: more dampening takes more bits for the same error, as D grows (the
# bundled model at one size .0038, with .01 and .3 .0042, GPTQ alone .0046).
ECSQ_PROPAGATED = 0.03

# Hessian of the changed inputs by which a matrix is corrected before it is rounded (.03 and .4
# do no better).
CORRECTION = 0.1

# Weight of the first token of a chunk in the Hessian of what attention's matrices are given, where any
# token counts 1 in the mean (docs/methods/gptq.md).
FIRST_TOKEN = 0.25

# Hessian of the changed inputs of a matrix that writes into the residual stream, which is corrected for what
# it lacks there (on SmolLM2 .3 and 1 leave .61 of that, .1 leaves .63, .03 leaves .67).
STREAM = 0.3

# Output-side Hessians (on SmolLM2 with IQ4_NL .0391, with .3 .0404).
ROWS = 1.0
