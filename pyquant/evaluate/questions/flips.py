"""Count the questions that two models answer otherwise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyquant.evaluate.significance import mcnemar


@dataclass(frozen=True)
class Flips:
    """Questions that a model answers otherwise than its base.

    Attributes
    ----------
    right_to_wrong, wrong_to_right : int
        Questions that the base alone, and the model alone, answers rightly.
    wrong_to_wrong : int
        Questions to which both give wrong answers, and not the same one.
    p : float
        McNemar's exact test: how probable it is, if either is as likely to be right alone, that their
        numbers differ at least as much.
    """

    right_to_wrong: int
    wrong_to_right: int
    wrong_to_wrong: int
    p: float


def flips(
    base: NDArray[np.int64], model: NDArray[np.int64], base_right: NDArray[np.bool_], right: NDArray[np.bool_]
) -> Flips:
    """Count flips. base, model: (n,) chosen answers. base_right, right: (n,) whether they are right."""
    lost, won = int((base_right & ~right).sum()), int((~base_right & right).sum())
    other = int((~base_right & ~right & (base != model)).sum())
    return Flips(lost, won, other, mcnemar(lost, won))
