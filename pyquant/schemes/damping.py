"""Defaults of damping, and where each was measured.

Damping is added to the diagonal of second moments, in units of the diagonal's mean. The more there is, the
less is trusted to what few tokens say of a direction. All values are those of least divergence, measured in
docs/compensation.md under the heading named here.
"""

from __future__ import annotations

# Every matrix rounded on its own ("Damping": techdocs-5M .0045 / .0070 on its own / on another text, with 0.3
# .0049 / .0073).
ON_ITS_OWN = 0.03

# Matrices rounded in the order in which the model computes ("Damping": the model in the box .0141 / .0197,
# with 0.03 .0144 / .0213, with 1 .0151 / .0203).
IN_ORDER = 0.3

# Uniform codes rounded in order: more damping takes more bits for the same error, as D grows ("In order" of
# docs/compression.md: the model in the box at one size .0038, with .01 and .3 .0042, on its own .0046).
UNIFORM_IN_ORDER = 0.03

# Moments of the changed inputs that a matrix is corrected for before it is rounded in order ("In order": .03
# and .4 do no better).
CORRECTION = 0.1

# Weight of the first token of a chunk in the moments of what attention's matrices are given, where any
# token counts 1 in the mean ("The first token").
FIRST_TOKEN = 0.25

# Moments of the changed inputs of a matrix that writes into the residual stream, which is corrected for what
# the stream lacks ("In order": on SmolLM2 .3 and 1 leave .61 of that, .1 leaves .63, .03 leaves .67).
STREAM = 0.3

# Moments of gradients, which rows make up for each other by ("Rows": on SmolLM2 with IQ4_NL .0391, with .3
# .0404).
ROWS = 1.0
