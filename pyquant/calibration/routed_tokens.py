"""Inputs of tokens that a layer sends to experts, kept until all experts' sums are made of them.

The sums of an expert take n_in^2 numbers, and those of 128 experts gigabytes. Tokens take the same room
however many experts there are. So tokens are kept, and the sums of one expert at a time are made of them.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import OutputError


class RoutedTokens:
    """Inputs of up to n_tokens tokens, (n_tokens, 1 or n_used, n_in), and their experts.

    folder: where they are kept, in a file without a name, if they take more than `memory` bytes.
    """

    def __init__(self, n_tokens: int, folder: Path, memory: int) -> None:
        self._room, self._folder, self._memory, self._n_tokens = n_tokens, folder, memory, 0
        self._inputs = np.empty((0, 1, 0), np.float32)
        self._experts = np.empty((0, 1), np.int32)

    def add(self, inputs: NDArray[np.float32], experts: NDArray[np.int32] | None) -> None:
        """Add the tokens of a piece. Raises OutputError: there is no room for them.

        inputs: (n, 1, n_in), what enters all experts that a token is sent to; or (n, n_used, n_in), what
        enters each. experts: (n, n_used); None, where they are not known: nothing is added.
        """
        if experts is None:
            return
        if not self._n_tokens:
            self._inputs = self._make((self._room, *inputs.shape[1:]))
            self._experts = np.empty((self._room, experts.shape[1]), np.int32)
        added = slice(self._n_tokens, self._n_tokens + len(inputs))
        self._inputs[added], self._experts[added] = inputs, experts
        self._n_tokens = added.stop

    def _make(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        n_bytes = 4 * int(np.prod(shape))
        if n_bytes <= self._memory:
            return np.empty(shape, np.float32)
        try:
            with tempfile.TemporaryFile(dir=self._folder) as file:
                # Its blocks are taken now: where there are none, writing mapped memory ends the process.
                os.posix_fallocate(file.fileno(), 0, n_bytes)
                return np.memmap(file, np.float32, "r+", shape=shape)
        except OSError as error:
            raise OutputError(
                f"{self._folder}: {n_bytes:,} bytes for inputs of experts: {error.strerror}"
            ) from None

    @property
    def inputs(self) -> NDArray[np.float32]:
        """All tokens' inputs."""
        return self._inputs[: self._n_tokens]

    @property
    def experts(self) -> NDArray[np.int32]:
        """All tokens' experts."""
        return self._experts[: self._n_tokens]

    def sent_to(self, expert: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Say which tokens are sent to an expert, in their order, and as which of each token's inputs."""
        token, place = np.nonzero(self.experts == expert)
        return token, place if self._inputs.shape[1] > 1 else np.zeros_like(place)

    def rows(self, expert: int) -> NDArray[np.float32]:
        """Give what enters an expert, (n, n_in), in the tokens' order."""
        return np.asarray(self._inputs[self.sent_to(expert)])
