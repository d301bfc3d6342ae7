"""An n-gram draft: what followed the same tokens before, looked up at next to no cost."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyquant.generation.speculative.decoding.draft import Drafted
from pyquant.generation.speculative.policies.certainty import Certainty

LONGEST, SHORTEST = 4, 2  # tokens that have to be the same
MOST = 32  # of which it is known that they were the same


class NgramDraft:
    """Proposes what most often came after the last tokens, in the prompt and the completion so far.

    Where several came as often, the latest is taken. Entropies and probabilities are those of what followed.
    """

    takes = draws = False

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget the completion before."""
        self.seconds = self.sure_seconds = 0.0
        self._tokens: list[int] = []
        # Of each n-gram, the places after it.
        self._after: dict[tuple[int, ...], list[int]] = {}

    def propose(
        self, tokens: Sequence[int], mask: NDArray[np.int32] | None, uniform: float
    ) -> Drafted | None:
        """Propose a token; None where the last tokens are new, or what followed is not allowed."""
        begin = time.perf_counter()
        self._read(tokens)
        places = self._places()
        self.seconds += time.perf_counter() - begin
        if not places:
            return None
        begin = time.perf_counter()
        found = self._followers(places)
        token, count = max(reversed(found.items()), key=lambda item: item[1])
        share = count / len(places)
        entropy = -sum(n / len(places) * math.log(n / len(places)) for n in found.values())
        matched = count * self._matched(next(at for at in reversed(places) if self._tokens[at] == token))
        self.sure_seconds += time.perf_counter() - begin
        if mask is not None and not mask[token // 32] >> (token % 32) & 1:
            return None
        return Drafted(token, None, Certainty(entropy, share, share, matched))

    def keep(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        while len(self._tokens) > length:
            for n in range(SHORTEST, LONGEST + 1):
                if len(self._tokens) > n:
                    self._after[tuple(self._tokens[-n - 1 : -1])].pop()
            self._tokens.pop()

    def _read(self, tokens: Sequence[int]) -> None:
        for token in tokens[len(self._tokens) :]:
            for n in range(SHORTEST, LONGEST + 1):
                if len(self._tokens) >= n:
                    self._after.setdefault(tuple(self._tokens[-n:]), []).append(len(self._tokens))
            self._tokens.append(token)

    def _places(self) -> list[int]:
        """Return where the last tokens came before, as many of them as possible: the places behind them."""
        for n in range(min(LONGEST, len(self._tokens)), SHORTEST - 1, -1):
            if places := self._after.get(tuple(self._tokens[-n:])):
                return places
        return []

    def _followers(self, places: list[int]) -> Counter[int]:
        """Count the tokens at places; the latest is counted last."""
        counted: Counter[int] = Counter()
        for place in places:
            token = self._tokens[place]
            counted[token] = counted.pop(token, 0) + 1
        return counted

    def _matched(self, place: int) -> int:
        """Count the tokens before a place that are the same as the last ones."""
        tokens, most = self._tokens, min(MOST, place)
        return next((n for n in range(most) if tokens[place - 1 - n] != tokens[-1 - n]), most)
