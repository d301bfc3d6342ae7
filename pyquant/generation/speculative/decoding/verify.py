"""Verify drafted tokens by the target's logits, so that the completion is the target's.

Greedy, a drafted token is accepted if the target would take it too. Sampled, it is accepted with
probability min(1, p / q), where p is the target's probability and q the draft's; else another one is drawn
from max(p - q, 0). What comes has the target's distribution (Leviathan et al., "Fast Inference from
Transformers via Speculative Decoding", 2023).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.generation.sampling.result import Sample
from pyquant.generation.sampling.sampling import Sampling, uniform
from pyquant.generation.speculative.decoding.draft import Drafted

# Uses of random numbers: a draft draws, a drafted token is accepted, another one is drawn in its place.
DRAFT, ACCEPT, ANOTHER = 1, 2, 3
Mask = Optional[NDArray[np.int32]]  # (ceil(n_vocab / 32),) int32; None: all tokens may come


class Verified(NamedTuple):
    """What comes at a position of the completion: a token, -1 where the mask allows none.

    log_p: of it with the target, among all at temperature 1, in nats. accepted: it is the drafted one.
    """

    token: int
    log_p: float
    accepted: bool


@dataclass(frozen=True)
class Numbers:
    """Random numbers of a round, each for a position and a use.

    A position may be drafted in several rounds, until a token is accepted there. How far a draft goes depends
    on numbers of tokens that are thrown away, so no later round may use these again.

    Of the run's `seed`, the completion that is `sample`, and tokens that it has at the round's beginning.
    """

    seed: int
    sample: int
    begin: int

    @classmethod
    def of(cls, sampling: Sampling, sample: Sample) -> Numbers:
        """Return those of a round that begins now."""
        return cls(sampling.seed, sample.prompt << 32 | sample.number, len(sample.tokens))

    def alone(self, i: int) -> float:
        """Return the number with which the target draws by itself, i tokens after the beginning."""
        return uniform(self.seed, self.sample, self.begin + i)

    def other(self, i: int, use: int) -> float:
        """Return the number of another use there: DRAFT, ACCEPT or ANOTHER."""
        return uniform(self.seed, self.sample, self.begin + i, 4 * i + use)


def verify(
    drafted: Sequence[Drafted],
    masks: Sequence[Mask],
    logits: NDArray[np.float32],
    sampling: Sampling,
    numbers: Numbers,
) -> Iterator[Verified]:
    """Yield what comes at each position: accepted tokens, then one of the target's own.

    Masks are before each drafted token, and after the last one if the completion can go on there; the
    target's logits, (len(masks), n_vocab) float32, are of the same places.
    """
    if sampling.temperature == 0:
        yield from _greedy(drafted, masks, logits, sampling)
        return
    for i, (of_draft, mask) in enumerate(zip(drafted, masks)):
        accepted, token, log_p = _core.verify(
            logits[i], of_draft.logits, mask, of_draft.token,
        numbers.other(i, ACCEPT), numbers.other(i, ANOTHER),
            temperature=sampling.temperature, top_k=sampling.top_k, top_p=sampling.top_p,
            min_p=sampling.min_p,
        )  # fmt: skip
        yield Verified(token, log_p, accepted)
        if not accepted:
            return
    if (last := len(drafted)) < len(masks):
        number = np.array([numbers.alone(last)])
        drawn = sampling.draw(logits[last : last + 1], number, _stack(masks[last:]))
        yield Verified(int(drawn.tokens[0]), float(drawn.log_p[0]), accepted=False)


def _greedy(
    drafted: Sequence[Drafted], masks: Sequence[Mask], logits: NDArray[np.float32], sampling: Sampling
) -> Iterator[Verified]:
    drawn = sampling.draw(logits, np.zeros(len(masks)), _stack(masks))
    for i, (token, log_p) in enumerate(zip(drawn.tokens.tolist(), drawn.log_p.tolist())):
        accepted = i < len(drafted) and drafted[i].token == token
        yield Verified(token, log_p, accepted)
        if not accepted:
            return


def _stack(masks: Sequence[Mask]) -> NDArray[np.int32] | None:
    there = [mask for mask in masks if mask is not None]
    return np.stack(there) if there else None
