"""A model that is run over pieces of tokens, which stop at each of its matrices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import ModelFileError
from pyquant.llama.model import Model

PIECE = 1024  # tokens that are computed at once, if chunks are no longer
LOGITS_BYTES = 1 << 27  # that llama.cpp may keep of a piece, which nobody reads

Number = TypeVar("Number", np.float32, np.int32)


def pieces_of(tokens: NDArray[np.int32]) -> list[NDArray[np.int32]]:
    """Cut chunks, (n_chunks, n_ctx), into pieces of some chunks each."""
    n_chunks = max(1, PIECE // tokens.shape[1])
    return [tokens[begin : begin + n_chunks] for begin in range(0, len(tokens), n_chunks)]


class StagedContext:
    """A model's pass over pieces; a context manager.

    stages: where it can stop: before the first of the matrices that share an input.
    n_vocab, n_ctx, n_pieces, n_together: tokens of the vocabulary, of a chunk; pieces; and tokens of the
    largest piece. on_gpu: whether a GPU computes them.
    """

    def __init__(
        self,
        model: Model,
        matrices: Iterable[str],
        pieces: list[NDArray[np.int32]],
        threads: int | None,
        *,
        wanted: NDArray[np.bool_] | None = None,
        allows_bf16: bool = True,
    ) -> None:
        """Prepare to run it.

        matrices: the names of those where the pass is to stop.
        pieces: tokens, each (n_chunks, n_ctx), the first the largest.
        wanted: after which tokens of a chunk `finish` gives logits, (n_ctx,); None: it is not called.
        allows_bf16: whether products may round to BF16.
        Raises ModelFileError.
        """
        self._pieces = pieces
        self._pass = _core.StagedPass(set(matrices), allows_bf16=allows_bf16)
        largest = pieces[0]
        self.path, self.n_vocab, self.n_ctx = model.path, model.n_vocab, largest.shape[1]
        self.on_gpu = model.on_gpu
        self.n_pieces, self.n_together = len(pieces), largest.size
        self._context = model.context(
            n_ctx=largest.shape[1], n_seq=len(largest), n_batch=largest.size, n_ubatch=largest.size,
            threads=threads, observer=self._pass,
        )  # fmt: skip
        if wanted is not None:
            self._nothing = self._few = wanted
            self._of_few: set[int] = set()
            self.stages = self._learn(wanted)
            return
        self._nothing = np.zeros(largest.shape[1], bool)
        self._few = np.arange(largest.shape[1]) % self._logits_step() == 0
        of_none, self.stages = self._learn(self._nothing), self._learn(self._few)
        # In the last layer only tokens go on whose logits are wanted: some models send them to experts before
        # they compute its attention's output.
        self._of_few = {
            i
            for i, (none, few) in enumerate(zip(of_none, self.stages))
            if (none.n_tokens, none.n_bytes) != (few.n_tokens, few.n_bytes)
        }

    def _logits_step(self) -> int:
        return -(-4 * self.n_together * self.n_vocab // LOGITS_BYTES)

    def _learn(self, wanted: NDArray[np.bool_]) -> list[_core.Stage]:
        with self._named():
            self._pass.learn()
            self._decode(self._pieces[0], wanted)
            self._pass.end_learning()
            return self._pass.stages

    def n_tokens(self, stage: int) -> int:
        """Count the tokens of all pieces that reach a stage."""
        n_chunks = sum(len(piece) for piece in self._pieces)
        return self.stages[stage].n_tokens * n_chunks // len(self._pieces[0])

    def run(
        self, piece: int, start: int | None, stage: int, states: _core.PassStates, state: int
    ) -> NDArray[np.float32] | None:
        """Bring a piece to a stage, and keep what it needs to go on from there.

        Parameters
        ----------
        piece
            Its number.
        start
            The stage where it was left; None: it begins.
        stage
            Where it stops.
        states, state
            Where it is kept.

        Returns
        -------
        (n_tokens, n_in) float32
            What enters the stage's matrices; of tokens that are sent to experts
            (n_tokens, n_used or 1, n_in). A view, valid until the next piece is run, of a GPU until the one
            after that. None if it is not known.

        Raises
        ------
        ModelFileError
        """
        with self._named():
            self._pass.begin(start, stage, states, state)
            self._decode(self._pieces[piece], self._few if stage in self._of_few else self._nothing)
            return self._of_piece(self._pass.inputs())

    def finish(
        self, piece: int, start: int | None, states: _core.PassStates, state: int
    ) -> NDArray[np.float32]:
        """Let a piece go on to its end; what was kept of it stays.

        piece, start, states, state: as for `run`.
        Returns (n_chunks, n_wanted, n_vocab) float32: logits, a view that is valid until the next piece is
        run.
        Raises ModelFileError.
        """
        with self._named():
            self._pass.begin(start, None, states, state)
            return self._decode(self._pieces[piece], self._few)[: len(self._pieces[piece])]

    def stream(self) -> NDArray[np.float32] | None:
        """Give what the matrix's product will be added to, (n_tokens, n_out); a view like `run`'s."""
        with self._named():
            return self._of_piece(self._pass.stream())

    def experts(self) -> NDArray[np.int32] | None:
        """Give the experts that the piece's tokens are sent to, (n_tokens, n_used); a view like `run`'s."""
        with self._named():
            return self._of_piece(self._pass.experts())

    def own(self, stage: int, i: int) -> NDArray[np.uint8]:
        """Give the i-th of a stage's matrices room of its own, (n_rows, row_bytes), to be written to."""
        with self._named():
            return self._pass.own(stage, i)

    def disown_before(self, stage: int) -> None:
        """Drop what was written to matrices of stages that all pieces are behind."""
        self._pass.disown_before(stage)

    def _of_piece(self, rows: NDArray[Number] | None) -> NDArray[Number] | None:
        """Take the rows of the piece's own chunks: those of a chunk are one behind the other."""
        return None if rows is None else rows[: len(rows) * self._n_own // len(self._pieces[0])]

    def _decode(self, tokens: NDArray[np.int32], wanted: NDArray[np.bool_]) -> NDArray[np.float32]:
        self._n_own = len(tokens)
        # The last piece is filled up: graphs of some models depend on the number of sequences (MiniMax M3).
        tokens = np.concatenate([tokens, self._pieces[0][len(tokens) :]])
        self._context.clear()
        logits = self._context.decode(tokens, 0, wanted)
        self._pass.rethrow()
        return logits

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the model in what a pass raises, as where a GPU is lost."""
        try:
            yield
        except RuntimeError as error:
            raise ModelFileError(f"{self.path}: {error}") from None

    def __enter__(self) -> StagedContext:
        return self

    def __exit__(self, *raised: object) -> None:
        self._pass.disown_before(len(self.stages))
        self._context.__exit__(*raised)
