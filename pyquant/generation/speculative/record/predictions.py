"""What a draft and its target say along a text that is there, in large batches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyquant.generation.sampling.result import END, Sample
from pyquant.generation.speculative.write.shared_cache import N_VIEWS, following, suits
from pyquant.llama.model import Context, Model

PORTION = 128  # tokens whose logits are in memory at a time


@dataclass(frozen=True)
class Readers:
    """A draft and its target, ready to read texts.

    Attributes
    ----------
    target, draft : Context
    shared : bool
        Whether the draft takes its target's keys and values, as it does where it drafts.
    """

    target: Context
    draft: Context
    shared: bool

    def along(
        self, prompt: NDArray[np.int32], sample: Sample, *, both: bool
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32] | None]]:
        """Yield what both say of the tokens behind a prompt, some at a time.

        Parameters
        ----------
        prompt : (n,) int32
        sample
            What was written behind it.
        both
            Whether the target's logits are wanted too.

        Yields
        ------
        of_draft : (n, n_vocab) float32
        of_target : (n, n_vocab) float32, or None

        Raises
        ------
        ModelFileError
        """
        for context in (self.target, self.draft):
            context.clear()
        text = np.array(sample.tokens, np.int32)
        n_written = len(text) + (sample.finish == END)
        read = np.concatenate([prompt, text])[: len(prompt) + n_written - 1]
        # Portions of one size: a short last one would be computed by other kernels, those for few tokens.
        size = math.ceil(len(read) / math.ceil(len(read) / PORTION))
        for begin in range(0, len(read), size):
            positions = np.arange(len(read))[begin : begin + size]
            wanted = positions >= len(prompt) - 1
            of_target = None
            if both or self.shared:
                of_target = _run(self.target, read[positions], positions, wanted & both)
            of_draft = self._draft(read, positions, wanted)
            if wanted.any():
                yield of_draft, of_target if both else None

    def _draft(
        self, read: NDArray[np.int32], positions: NDArray[np.int64], wanted: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        if not self.shared:
            return _run(self.draft, read[positions], positions, wanted)
        end = int(positions[-1]) + 1
        parts = following(self.draft, self.target, read[:end], end - int(wanted.sum()))
        said = [part.copy() for part in parts]
        return np.concatenate(said) if said else np.empty((0, self.draft.model.n_vocab), np.float32)


@contextmanager
def readers(target: Model, draft: Model, n_ctx: int, threads: int | None) -> Iterator[Readers]:
    """Make both ready for texts of n_ctx tokens. Raises ModelFileError and NotEnoughMemory."""
    with (
        target.context(n_ctx=n_ctx, n_views=1, threads=threads) as of_target,
        draft.context(n_ctx=n_ctx, n_views=N_VIEWS, threads=threads) as of_draft,
    ):
        yield Readers(of_target, of_draft, suits(of_target, of_draft))


def _run(
    context: Context, tokens: NDArray[np.int32], positions: NDArray[np.int64], wanted: NDArray[np.bool_]
) -> NDArray[np.float32]:
    return context.run(tokens, positions, np.zeros_like(positions), wanted)
