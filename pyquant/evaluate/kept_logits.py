"""Logits that are kept until other models have been compared with them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import OutputError
from pyquant.evaluate.kld import Scores
from pyquant.files.output_file import output_errors, write_fully
from pyquant.llama.chunks import n_scored_together

# Bytes that are kept in memory even where a batch's logits take less: several batches then share a context.
IN_MEMORY = 1 << 26


def bytes_in_memory(n_vocab: int, n_ctx: int) -> int:
    """Return how many bytes of logits are kept in memory at most: a batch's, but no less than 64 MiB."""
    return max(IN_MEMORY, 4 * n_vocab * n_scored_together(n_ctx))


def bytes_on_disk(n: int, n_vocab: int, n_ctx: int) -> int:
    """Return how many bytes `KeptLogits` takes in the folder for temporary files; its parameters."""
    n_bytes = 4 * n_vocab * n
    return 0 if n_bytes <= bytes_in_memory(n_vocab, n_ctx) else n_bytes


class KeptLogits:
    """Room for the logits after n tokens; a context manager.

    It is in memory as far as `bytes_in_memory` goes, and otherwise in a file without a name in the folder
    for temporary files, all of whose room is taken at once.

    n_vocab: logits after each of them.
    n_ctx: tokens of the chunks that they are from.
    Raises OutputError: the folder for temporary files lacks the room.
    """

    def __init__(self, n: int, n_vocab: int, *, n_ctx: int) -> None:
        self._row_bytes = 4 * n_vocab
        self._stack = ExitStack()
        self._logits: NDArray[np.float32] | None = None
        on_disk = bytes_on_disk(n, n_vocab, n_ctx)
        if not on_disk:
            self._logits = np.empty((n, n_vocab), np.float32)
            return
        self._portion = np.empty((n_scored_together(n_ctx), n_vocab), np.float32)
        self._reserve(on_disk)

    def _reserve(self, n_bytes: int) -> None:
        folder = tempfile.gettempdir()
        hint = "; TMPDIR=FOLDER names another place for temporary files, fewer chunks take less"
        if (free := shutil.disk_usage(folder).free) < n_bytes:
            raise OutputError(
                f"{folder}: the base's logits take {n_bytes:,} bytes there, {free:,} are free{hint}"
            )
        doing = f"taking {n_bytes:,} bytes for the base's logits{hint}"
        with output_errors(folder, doing), ExitStack() as stack:
            self._file = stack.enter_context(tempfile.TemporaryFile(buffering=0))
            _core.reserve(self._file.fileno(), n_bytes)
            self._stack = stack.pop_all()

    def put(self, begin: int, logits: NDArray[np.float32]) -> None:
        """Keep the logits after tokens begin, begin+1, ...; logits: (n, n_vocab) float32."""
        if self._logits is not None:
            self._logits[begin : begin + len(logits)] = logits
            return
        data = np.ascontiguousarray(logits).data.cast("B")
        with output_errors(tempfile.gettempdir(), "writing the base's logits"):
            write_fully(self._file.fileno(), data, begin * self._row_bytes)

    def get(self, begin: int, n: int) -> NDArray[np.float32]:
        """Return the logits after tokens begin..begin+n-1, valid until the next call.

        Returns (n, n_vocab) float32.
        """
        if self._logits is not None:
            return self._logits[begin : begin + n]
        portion = self._portion[:n]
        rest = portion.data.cast("B")
        with output_errors(tempfile.gettempdir(), "reading the base's logits"):
            self._file.seek(begin * self._row_bytes)
            while rest:
                rest = rest[self._file.readinto(rest) :]
        return portion

    def score(
        self,
        parts: Iterable[tuple[NDArray[np.float32], NDArray[np.int32]]],
        n: int,
        n_threads: int,
        advance: Callable[[int], None] = lambda n_tokens: None,
    ) -> Scores:
        """Score what another model says after the first n tokens, beside what is kept.

        parts: in order, (m, n_vocab) logits and the (m,) tokens that came.
        advance: called with the number of tokens that were scored.
        """
        scores, begin = Scores.empty(n), 0
        for logits, targets in parts:
            end = begin + len(targets)
            kept = self.get(begin, len(targets))
            scores.part(begin, end).set(Scores(*_core.compare_logits(kept, logits, targets, n_threads)))
            begin = end
            advance(len(targets))
        return scores

    def __enter__(self) -> KeptLogits:
        return self

    def __exit__(self, *raised: object) -> None:
        self._logits = None
        self._stack.close()
