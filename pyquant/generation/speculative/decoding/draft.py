"""Interface of drafts: they propose the next token of a completion, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pyquant.generation.speculative.policies.certainty import Certainty


class Drafted(NamedTuple):
    """A token that a draft proposes, how sure it is, and what it was drawn from.

    logits: (n_vocab,) float32; None where the draft had no choice.
    """

    token: int
    logits: NDArray[np.float32] | None
    sure: Certainty


class Draft(Protocol):
    """Proposes tokens of one completion at a time.

    Attributes
    ----------
    seconds : float
        Spent on computing tokens since `begin`.
    sure_seconds : float
        Spent since then on knowing how sure each token was: what policies decide by.
    draws : bool
        Whether it draws tokens at random.
    takes : bool
        Whether it takes over what its target has computed of verified tokens, and reads only the last one.
    """

    seconds: float
    sure_seconds: float
    draws: bool
    takes: bool

    def begin(self) -> None:
        """Forget the completion before."""

    def propose(
        self, tokens: Sequence[int], mask: NDArray[np.int32] | None, uniform: float
    ) -> Drafted | None:
        """Propose a token; None where the draft has nothing to say. Raises ModelFileError.

        Parameters
        ----------
        tokens
            The prompt and the completion so far, with what was drafted since the last verification.
        mask : (ceil(n_vocab / 32),) int32, optional
            Bit j % 32 of word j // 32 allows token j.
        uniform
            A random number in [0, 1).
        """

    def keep(self, length: int) -> None:
        """Forget all but the first `length` tokens: the others were refused."""
