"""Change the weights of a model between two runs of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from pyquant import _core, limits
from pyquant.llama.model import Model


class RunningWeights:
    """The matrices that a model is run with. It runs over a few tokens to find them.

    model: loaded as `changing`.
    names: of these matrices.
    Raises ModelFileError: llama.cpp cannot run the model.
    """

    def __init__(self, model: Model) -> None:
        self._found = _core.RunningWeights()
        n_tokens = int(limits.CTX.low)
        with model.context(n_ctx=n_tokens, threads=1, observer=self._found) as context:
            context.decode(np.zeros((1, n_tokens), np.int32), 0, np.ones(n_tokens, bool))
        self.names = frozenset(self._found.names)

    @contextmanager
    def copied(self, name: str) -> Iterator[NDArray[np.uint8]]:
        """Run the model with a copy of a matrix, which takes as much memory, until the block ends.

        Yields (n_rows, row_bytes) uint8: the copy, in the tensor's type, to be written to.
        """
        copy = self._found.copy(name)
        try:
            yield copy
        finally:
            self._found.restore(name)
