"""Find where a greedy completion is not the one that the target generates alone.

llama.cpp computes several tokens by other kernels than one, whose last bits differ. Where two tokens are as
likely but for these, a verified draft may go on with the other one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session


class Flip(NamedTuple):
    """A token of a completion, behind `position` others, where the target alone would generate another one.

    gap: by how much the logit of that is larger, where the target reads token by token.
    """

    position: int
    written: int
    alone: int
    gap: float


def find_flips(session: Session, prompt: NDArray[np.int32], tokens: list[int], *, ended: bool) -> list[Flip]:
    """Let the target read a greedy completion token by token, and find where it would go on otherwise.

    Without flips the completion is the one that the target generates alone; with some, it is the same up to
    the first.

    Parameters
    ----------
    session
        Of the target, with one sequence.
    prompt : (n,) int32
    tokens, ended
        Of the completion, and whether the target ended it.

    Raises
    ------
    ModelFileError
    """
    ends = session.model.vocabulary.end_tokens()
    session.roll_back(0, 0)
    logits, flips = session.extend(0, prompt), []
    for position in range(len(tokens) + ended):
        if position:
            logits = session.extend(0, np.array(tokens[position - 1 : position], np.int32))
        alone = int(Sampling(temperature=0).draw(logits[None], np.zeros(1)).tokens[0])
        written = tokens[position] if position < len(tokens) else int(ends[logits[ends].argmax()])
        if alone != written:
            flips.append(Flip(position, written, alone, float(logits[alone] - logits[written])))
    return flips
