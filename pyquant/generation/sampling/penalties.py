"""Penalties for tokens that came before, and biases of tokens: what changes logits before a draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pyquant import limits
from pyquant.errors import ConfigError


@dataclass(frozen=True)
class Penalties:
    """Changes of logits, in llama.cpp's order and by its formulas.

    Raises
    ------
    ConfigError
        A number is outside of its range.
    """

    bias: Mapping[int, float] = field(default_factory=dict)  # added to a token's logit; -inf: it never comes
    repeat: float = 1.0  # a positive logit of a token that came is divided by it, another multiplied
    presence: float = 0.0  # taken from the logit of each token that came
    frequency: float = 0.0  # taken for each time that it came
    last: int = limits.LAST_TOKENS  # how many of the last tokens count, the prompt's among them; 0: all

    def __post_init__(self) -> None:
        limits.PENALTY_REPEAT.check("repeat-penalty", self.repeat)
        limits.PENALTY.check("presence-penalty", self.presence)
        limits.PENALTY.check("frequency-penalty", self.frequency)
        limits.PENALTY_LAST.check("repeat-last-n", self.last)

    @property
    def off(self) -> bool:
        """Say whether they change nothing."""
        return not self.bias and (self.repeat, self.presence, self.frequency) == (1.0, 0.0, 0.0)

    def check(self, n_vocab: int) -> None:
        """Refuse biases of tokens that a vocabulary has not. Raises ConfigError."""
        for token in self.bias:
            if not 0 <= token < n_vocab:
                raise ConfigError(f"logit-bias: token {token} is none of {n_vocab:,}: 0 to {n_vocab - 1} are")

    def apply(self, logits: NDArray[np.float32], tokens: Sequence[int]) -> None:
        """Change the logits of what may follow tokens.

        Parameters
        ----------
        logits : (n_vocab,) float32
            Changed in place.
        tokens
            The prompt's and the text's so far.
        """
        for token, bias in self.bias.items():
            logits[token] += np.float32(bias)
        counted = np.array(tokens[-self.last :] if self.last else tokens, np.int64)
        came, times = np.unique(counted, return_counts=True)
        values = logits[came]
        values = np.where(values <= 0, values * np.float32(self.repeat), values / np.float32(self.repeat))
        logits[came] = values - (times * self.frequency + self.presence).astype(np.float32)
