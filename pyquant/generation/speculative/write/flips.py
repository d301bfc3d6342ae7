"""Find where a greedy text is not the one that the target writes alone.

llama.cpp computes several tokens by other kernels than one, whose last bits differ. Where two tokens are as
likely but for these, a verified draft may go on with the other one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session


@dataclass(frozen=True)
class Flip:
    """A token of a text in whose place the target alone would write another one.

    Attributes
    ----------
    position : int
        Tokens of the text before it.
    written, alone : int
        The token of the text, and that of the target alone.
    gap : float
        By how much the logit of `alone` is larger, where the target reads token by token.
    """

    position: int
    written: int
    alone: int
    gap: float

    def to_json(self) -> dict[str, Any]:
        """Return it as `pyquant draft run --check --json` prints it."""
        return asdict(self)


def find_flips(
    session: Session, prompt: NDArray[np.int32], tokens: list[int], *, ended: bool = False
) -> list[Flip]:
    """Let the target read a greedy text token by token, and find where it would go on otherwise.

    Without flips the text is the one that the target writes alone; with some, it is the same up to the first.

    Parameters
    ----------
    session
        Of the target, with one sequence.
    prompt : (n,) int32
    tokens
        Of the text.
    ended
        Whether the target ended it.

    Raises
    ------
    ModelFileError
    """
    sampling = Sampling(temperature=0)
    ends = session.model.vocabulary.end_tokens()
    session.roll_back(0, 0)
    logits = session.extend(0, prompt)[None]
    flips = []
    for position in range(len(tokens) + ended):
        if position:
            logits = session.step(np.zeros(1, np.int64), np.array([tokens[position - 1]], np.int32))
        alone = int(sampling.draw(logits, np.zeros(1)).tokens[0])
        written = tokens[position] if position < len(tokens) else int(ends[logits[0, ends].argmax()])
        if alone != written:
            gap = float(logits[0, alone]) - float(logits[0, written])
            flips.append(Flip(position, written, alone, gap))
    return flips
