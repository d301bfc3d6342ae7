"""Measure what drafting and verifying take, a turn at a time.

Draft tokens come after a pass of the target, as in drafting: what either model leaves in the processor's
caches is not the other's. So the first of them takes longer than the next.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from pyquant import limits
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.measure.cost_report import Seconds, Timed
from pyquant.generation.speculative.write.draft import Draft
from pyquant.llama.model import Model

LARGEST, FEWEST = 32, 2  # tokens of the largest pass: what it is, and at least
IN_A_ROW = 4  # passes over one token of a turn
SHALLOWEST = int(limits.DRAFT_DEPTH.low)  # tokens that both have read before, at least

Progress = Callable[[int, int], None]


class CostMeter:
    """Measures a draft token, and passes of the target over 1, 2, ... tokens.

    Parameters
    ----------
    model
        The target.
    session
        Its, with one sequence.
    draft
    sampling
        How tokens are drawn after a pass.
    depth
        Tokens that both models have read before, SHALLOWEST at least.
    largest
        Tokens of the largest pass, FEWEST at least; there is room for them behind the others.
    """

    def __init__(
        self,
        model: Model,
        session: Session,
        draft: Draft,
        sampling: Sampling,
        *,
        depth: int,
        largest: int = LARGEST,
    ) -> None:
        self._session, self._draft, self._sampling, self._depth = session, draft, sampling, depth
        self._tokens = np.random.default_rng(0).integers(0, model.n_vocab, depth + largest).astype(np.int32)
        self._text = self._tokens[:depth].tolist()
        self._drafts: dict[int, list[float]] = {1: [], 2: []}  # by tokens to read
        self._next: list[float] = []  # behind another one
        self._prompt: list[float] = []
        self._sure: list[float] = []
        self._passes: list[list[float]] = [[] for _ in range(largest)]
        self._alone: list[float] = []

    def begin(self) -> None:
        """Let the target read what comes before; the draft does in each turn. Raises ModelFileError."""
        self._session.roll_back(0, 0)
        self._session.extend(0, self._tokens[: self._depth])
        self._draft.begin()

    def turn(self, progress: Progress | None = None) -> None:
        """Measure each pass once, and before each two draft tokens.

        The draft first reads anew all that comes before. The first of both draft tokens has one and two
        tokens to read in turns. Then passes over one token are measured, each behind the one before. Medians
        of these and of draft tokens are the turn's.

        Raises ModelFileError.
        """
        of_turn: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
        further: list[float] = []
        self._draft.keep(0)
        self._prompt.append(self._draft_token(self._text)[0] / len(self._text))
        for n, seconds in enumerate(self._passes, start=1):
            n_unread = 2 - n % 2
            # What a draft takes over is one token at least: a round brings one.
            self._draft.keep(len(self._text) - n_unread - self._draft.takes)
            of_turn[n_unread].append(self._draft_token(self._text))
            further.append(self._draft_token([*self._text, int(self._tokens[0])])[0])
            seconds.append(self._pass(self._tokens[self._depth - 1 : self._depth - 1 + n]))
            if progress:
                progress(n, len(self._passes))
        single = self._tokens[self._depth - 1 : self._depth]
        _, *behind_another = [self._pass(single) for _ in range(IN_A_ROW + 1)]
        self._alone.append(statistics.median(behind_another))
        for n_unread, measured in of_turn.items():
            self._drafts[n_unread].append(statistics.median(seconds for seconds, _ in measured))
        self._next.append(statistics.median(further))
        self._sure.append(statistics.median(seconds for _, seconds in of_turn[1]))

    def forget(self) -> None:
        """Forget what was measured so far."""
        for measured in (
            *self._drafts.values(),
            self._next,
            self._prompt,
            self._sure,
            self._alone,
            *self._passes,
        ):
            measured.clear()

    def timed(self) -> Timed:
        """Return what was measured, in at least one turn."""
        return Timed(
            draft_token=Seconds(self._drafts[1]),
            draft_next=Seconds(self._next),
            draft_of_two=Seconds(self._drafts[2]),
            draft_prompt=Seconds(self._prompt),
            certainty=Seconds(self._sure),
            verify=[Seconds(seconds) for seconds in self._passes],
            alone=Seconds(self._alone),
        )

    def _draft_token(self, text: list[int]) -> tuple[float, float]:
        """Return the seconds of a draft token, and those of knowing how sure it is."""
        draft = self._draft
        before, begin = draft.sure_seconds, time.perf_counter()
        draft.propose(text, None, 0.5)
        return time.perf_counter() - begin, draft.sure_seconds - before

    def _pass(self, tokens: np.ndarray) -> float:
        self._session.roll_back(0, self._depth - 1)
        begin = time.perf_counter()
        logits = self._session.follow(0, tokens)
        self._sampling.draw(logits, np.zeros(len(tokens)))
        return time.perf_counter() - begin
