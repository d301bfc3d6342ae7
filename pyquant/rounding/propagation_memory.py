"""Estimate the memory and disk that error propagation takes, before it begins."""

from __future__ import annotations

import shutil
import tempfile
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
from pyquant.rounding.staged_context import LOGITS_BYTES, StagedContext

BYTES_OF_CORRECTION = 24  # for each element of a matrix' Hessian: sums and equations, and copies of both


@dataclass(frozen=True)
class PropagationMemory:
    """Bytes that error propagation takes."""

    weights: int  # the copy of the model; the model itself is mapped, and the system may drop it
    passes: int  # what llama.cpp computes both passes with
    correction: int  # the equations of the largest correction
    states: int  # what is kept of all pieces between matrices
    in_memory: int  # how much of that may be in memory; the rest is on disk
    n_states: int  # how many states there are: two of each piece

    @classmethod
    def of(cls, model: ModelFile, running: StagedContext, memory: int | None) -> PropagationMemory:
        """Add it up.

        memory: bytes that states may take in memory; None: all.
        """
        n_states, n_tokens = 2 * running.n_pieces, running.n_together
        cache = cache_memory(model, running.n_ctx, n_tokens // running.n_ctx)
        logits = min(LOGITS_BYTES, 4 * n_tokens * running.n_vocab)
        states = n_states * max((stage.n_bytes for stage in running.stages), default=0)
        widest = max((stage.n_in for stage in running.stages), default=0)
        return cls(
            weights=model.n_bytes,
            passes=2 * (cache + activation_memory(model, n_tokens) + logits),
            correction=BYTES_OF_CORRECTION * widest**2,
            states=states,
            in_memory=states if memory is None else min(memory, states),
            n_states=n_states,
        )

    @property
    def total(self) -> int:
        """All that is in memory."""
        return self.weights + self.passes + self.correction + self.in_memory

    @property
    def on_disk(self) -> int:
        """All that is on disk, beside the output."""
        return self.states - self.in_memory

    def describe(self) -> str:
        """Say it in one line."""
        disk = f", and {_gb(self.on_disk)} on disk" if self.on_disk else ""
        return (
            f"error propagation: about {_gb(self.total)} of memory: the copy's weights {_gb(self.weights)}, "
            f"passes "
            f"{_gb(self.passes)}, corrections {_gb(self.correction)}, what is kept of the pieces "
            f"{_gb(self.in_memory)}{disk}"
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


def _gb(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.2g} GB"
