"""Estimate the memory and disk that rounding takes while models run stage by stage, before it begins."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyquant import _core
from pyquant.errors import ConfigError, OutputError
from pyquant.evaluate.memory import activation_memory
from pyquant.llama.cache import cache_memory
from pyquant.machine.memory import available_memory
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import EMBEDDINGS
from pyquant.rounding.correction import ENOUGH
from pyquant.rounding.factors import BYTES
from pyquant.rounding.staged_context import LOGITS_BYTES, StagedContext

CORRECTING = 8  # for each element of a stage's Hessian: sums and equations that its matrices are corrected by

MEMORY = 1 << 30  # that states take unless more is allowed; the others are on disk


@dataclass(frozen=True)
class StagedMemory:
    """Bytes that a model takes which is run stage by stage, alone or beside its quantized copy."""

    weights: int  # of the copy, those at work; models are mapped, and the system may drop them
    passes: int  # what llama.cpp computes all passes with
    sums: int  # of the largest stage
    states: int  # what is kept of all pieces between matrices
    in_memory: int  # how much of that may be in memory; the rest is on disk
    n_states: int  # how many states there are: of each piece one for each pass
    doing: str  # what it is taken for

    @classmethod
    def of(
        cls, model: ModelFile, running: StagedContext, memory: int | None, *, n_passes: int, doing: str
    ) -> StagedMemory:
        """Add it up.

        memory: bytes that states may take in memory; None: MEMORY.
        n_passes: 1, or 2 with that of a quantized copy. doing: what it is taken for.
        """
        n_states, n_tokens = n_passes * running.n_pieces, running.n_together
        cache = cache_memory(model, running.n_ctx, n_tokens // running.n_ctx)
        logits = min(LOGITS_BYTES, 4 * n_tokens * running.n_vocab)
        states = n_states * max((stage.n_bytes for stage in running.stages), default=0)
        return cls(
            weights=weights_at_work(model) * (n_passes - 1),
            passes=n_passes * (cache + activation_memory(model, n_tokens) + logits),
            sums=max(
                (
                    bytes_of_sums(stage.n_in, running.n_tokens(i) if n_passes > 1 else 0)
                    for i, stage in enumerate(running.stages)
                ),
                default=0,
            ),
            states=states,
            in_memory=min(MEMORY if memory is None else memory, states),
            n_states=n_states,
            doing=doing,
        )

    @property
    def total(self) -> int:
        """All that is in memory."""
        return self.weights + self.passes + self.sums + self.in_memory

    @property
    def on_disk(self) -> int:
        """All that is on disk, beside the output."""
        return self.states - self.in_memory

    def describe(self) -> str:
        """Say it in one line."""
        disk = f", and {_gb(self.on_disk)} on disk" if self.on_disk else ""
        copy = f"weights {_gb(self.weights)}, " if self.weights else ""
        return (
            f"{self.doing}: about {_gb(self.total)} of memory: {copy}passes {_gb(self.passes)}, sums "
            f"{_gb(self.sums)}, what is kept of the pieces {_gb(self.in_memory)}{disk}"
        )

    def check(self, folder: Path) -> None:
        """Refuse what does not fit: a system that gives memory that it lacks kills the process in the end.

        Raises ConfigError, OutputError: with the sizes.
        """
        free = available_memory()
        if free is not None and self.total > free:
            raise ConfigError(
                f"{self.describe()}; {_gb(free)} of memory are free: give fewer chunks, or "
                f"--memory SIZE, which keeps the rest of the pieces on disk"
            )
        room = shutil.disk_usage(folder).free
        if self.on_disk > room:
            raise OutputError(f"{folder}: no room: {self.describe()}; {_gb(room)} are free there")

    @contextmanager
    def states_in(self, folder: Path) -> Iterator[_core.PassStates]:
        """Make room for the states. What is on disk has no name, and goes with the process.

        Raises OutputError.
        """
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                yield _core.PassStates(
                    self.n_states,
                    n_bytes=self.states // self.n_states,
                    memory=self.in_memory,
                    file=file.fileno(),
                )
        except OSError as error:
            raise OutputError(f"{folder}: {self.describe()}: {error.strerror}") from None


def bytes_of_sums(n_in: int, n_tokens: int) -> int:
    """Count what a stage's sums and factor take, n_in wide, where its matrices are corrected by n_tokens."""
    return (BYTES + CORRECTING * (n_tokens >= ENOUGH * n_in)) * n_in**2


def weights_at_work(model: ModelFile) -> int:
    """Count the bytes of the largest layer's matrices, or of the largest outside of layers."""
    of_layers: dict[int, int] = defaultdict(int)
    for tensor in model.tensors:
        of_layers[tensor.layer] += tensor.n_bytes
    of_layers.pop(-1, None)
    outside = [tensor.n_bytes for tensor in model.tensors if tensor.layer < 0 and tensor.name != EMBEDDINGS]
    return max([*of_layers.values(), *outside], default=0)


def _gb(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.2g} GB"
