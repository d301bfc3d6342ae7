"""Runs of a model of which one matrix is changed at a time: what comes before it is computed once.

All pieces of the text are brought to a matrix and kept there (csrc/calibrate/staged_pass.h). From there they
go on to their end as often as the matrix is changed, and once to the next matrix while it is as it was.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.evaluate.kept_logits import IN_MEMORY, KeptLogits
from pyquant.files.output_file import output_errors
from pyquant.llama.chunks import BATCH, Chunks, together
from pyquant.llama.model import Model
from pyquant.machine.cpu import n_threads
from pyquant.models.tensor_name import EMBEDDINGS
from pyquant.rounding.staged_context import StagedContext


class KeptPrefixes:
    """Compare a running model with itself while one of its matrices is changed; a context manager.

    Chunks are computed whole, about 2048 tokens of them at once.

    matrices: names of those that will be changed.
    chunks: what it is run over.
    allows_bf16: whether products may round to BF16, which adds some 1e-4 to KLDs: one matrix may cause less.
    Raises ModelFileError: the model cannot be run. OutputError: the folder for temporary files has no room.
    """

    def __init__(
        self,
        running: Model,
        matrices: Iterable[str],
        chunks: Chunks,
        threads: int | None,
        *,
        allows_bf16: bool = False,
    ) -> None:
        self._path, self._chunks, self._threads = running.path, chunks, n_threads(threads)
        tokens, step = chunks.given_to(running), together(chunks.n_ctx)
        self._pieces = [tokens[begin : begin + step] for begin in range(0, len(tokens), step)]
        self._at: int | None = None  # the stage where pieces are kept; None: nowhere
        self._from: int | None = None  # the stage from which runs go on
        with ExitStack() as stack:
            # Embeddings change all that follows, also where they are the output matrix too.
            self._context = stack.enter_context(
                StagedContext(
                    running, set(matrices) - {EMBEDDINGS}, self._pieces, threads,
                    wanted=np.arange(chunks.n_ctx) >= chunks.n_ctx // 2, allows_bf16=allows_bf16,
                )
            )  # fmt: skip
            stages = self._context.stages
            self._stage_of = {name: i for i, stage in enumerate(stages) for name in stage.matrices}
            n_bytes = max((stage.n_bytes for stage in stages), default=0)
            with output_errors(tempfile.gettempdir(), "keeping what a model has computed"):
                file = stack.enter_context(tempfile.TemporaryFile())
                self._states = _core.PassStates(
                    len(self._pieces), n_bytes=n_bytes, memory=IN_MEMORY, file=file.fileno()
                )
            n = chunks.n_chunks * chunks.n_scored
            self._kept = stack.enter_context(KeptLogits(n, running.n_vocab, n_ctx=chunks.n_ctx))
            for begin, logits in self._logits():
                self._kept.put(begin, logits)
            self.kld_by_chunk()  # refuses a model that is broken
            self._stack = stack.pop_all()

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Sort tensors as the model comes to them, those first that are no matrix of it."""
        return sorted(names, key=lambda name: self._stage_of.get(name, -1))

    def go_to(self, name: str) -> None:
        """Bring all pieces to a tensor, which is not before that of the call before.

        Nothing of the model may be changed meanwhile. Where a pass cannot go on from there, as that of a
        recurrent model, runs begin before.
        """
        stage = self._stage_of.get(name)
        if stage is None or stage == self._at or not self._context.stages[stage].resumes:
            self._from = None if stage is None else self._at
            return
        for piece in range(len(self._pieces)):
            self._context.run(piece, self._at, stage, self._states, piece)
        self._at = self._from = stage

    def kld_by_chunk(self) -> NDArray[np.float64]:
        """Run the model, changed where `go_to` went or behind it, and compare it with what it was.

        Returns (n_chunks,) float64: the mean KLD per token of each chunk, in nats.
        Raises ModelFileError.
        """
        n_scored = self._chunks.n_scored
        targets = np.ascontiguousarray(self._chunks.tokens[:, self._chunks.n_ctx - n_scored :]).reshape(-1)
        parts = ((logits, targets[begin : begin + len(logits)]) for begin, logits in self._logits())
        scores = self._kept.score(parts, len(targets), self._threads)
        scores.check(self._path, n_scored)
        return scores.kld_by_chunk(n_scored)

    def _logits(self) -> Iterable[tuple[int, NDArray[np.float32]]]:
        """Yield logits after consecutive scored tokens, and the number of the first, in order."""
        begin, n_scored = 0, self._chunks.n_scored
        for piece in range(len(self._pieces)):
            for of_chunk in self._context.finish(piece, self._from, self._states, piece):
                for at in range(0, n_scored, BATCH):
                    part = of_chunk[at : min(at + BATCH, n_scored)]
                    yield begin + at, part
                begin += n_scored

    def __enter__(self) -> KeptPrefixes:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()
