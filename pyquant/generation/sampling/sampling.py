"""Sampling of tokens: settings, and random numbers that depend on nothing but where they are used."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyquant import _core, limits


class Drawn(NamedTuple):
    """Tokens that were drawn, one of each row of logits.

    Attributes
    ----------
    tokens : (n,) int32
        -1 where a mask allows none.
    log_p : (n,) float64
        Logarithms of their probabilities among all tokens at temperature 1, in nats.
    allowed : (n,) float64
        The share of probability that a mask leaves.
    sums : (n, 2) float64
        The largest logit, and the sum of exp(logit - largest) of all tokens.
    """

    tokens: NDArray[np.int32]
    log_p: NDArray[np.float64]
    allowed: NDArray[np.float64]
    sums: NDArray[np.float64]


@dataclass(frozen=True)
class Sampling:
    """Settings of a draw, applied in llama.cpp's order: top-k, top-p, min-p, temperature; a mask comes first.

    Raises
    ------
    ConfigError
        A number is outside of its range.
    """

    temperature: float = 0.8  # divides logits; 0: the most likely token is taken
    top_k: int = 40  # keep so many of the most likely tokens; 0: all
    top_p: float = 0.95  # keep the most likely tokens until their probabilities add up to this; 1: all
    min_p: float = 0.05  # keep tokens with at least this part of the most likely one's probability; 0: all
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("temperature", "top_k", "top_p", "min_p", "seed"):
            getattr(limits, name.upper()).check(name.replace("_", "-"), getattr(self, name))

    @property
    def truncates(self) -> bool:
        """Say whether less than the whole vocabulary can be drawn."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    @property
    def for_kernel(self) -> dict[str, Any]:
        """Settings as kernels name them."""
        return {
            "temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p, "min_p": self.min_p,
        }  # fmt: skip

    def draw(
        self,
        logits: NDArray[np.float32],
        uniform: NDArray[np.float64],
        mask: NDArray[np.int32] | None = None,
    ) -> Drawn:
        """Draw a token of each row.

        Parameters
        ----------
        logits : (n, n_vocab) float32
        uniform : (n,) float64
            Random numbers in [0, 1).
        mask : (n, ceil(n_vocab / 32)) int32, optional
            Bit j % 32 of word j // 32 allows token j.
        """
        return Drawn(*_core.draw(logits, mask, uniform, **self.for_kernel, n_threads=1))

    def draw_again(
        self,
        logits: NDArray[np.float32],
        drawn: Drawn,
        rows: NDArray[np.int64],
        uniform: NDArray[np.float64],
        mask: NDArray[np.int32],
    ) -> Drawn:
        """Draw what `draw` would with masks, in less time: what is known of the rows is not computed again.

        Parameters
        ----------
        logits, drawn
            What `draw` was called with, and what it returned.
        rows : (n_rows,) int64
            Rows to draw from.
        uniform, mask
            As for `draw`, of these rows.
        """
        return Drawn(*_core.draw_again(logits, rows, drawn.sums, mask, uniform, **self.for_kernel))

    def to_json(self) -> dict[str, Any]:
        """Return the settings as results name them."""
        return asdict(self)


def uniform(seed: int, sample: int, position: int, attempt: int = 0) -> float:
    """Return a random number in [0, 1) that depends on these four alone.

    It is the first number of Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) with
    key (seed, sample) and counter (position, attempt), of a run's completion, its token, and the draw for it:
    what else is drawn, and in which order, is of no matter.
    """
    return _core.uniform(seed, sample, position, attempt)
