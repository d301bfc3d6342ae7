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
from pyquant.calibration.routed_tokens import RoutedTokens
from pyquant.errors import ConfigError, OutputError
from pyquant.evaluate.memory import activation_memory
from pyquant.llama.cache import cache_memory
from pyquant.machine.memory import available_memory
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import EMBEDDINGS, MADE_BY_EXPERTS, kind_of
from pyquant.rounding.correction import ENOUGH
from pyquant.rounding.factors import BYTES
from pyquant.rounding.staged_context import LOGITS_BYTES, StagedContext

CORRECTING = 8  # for each element of a stage's Hessian: sums and equations that its matrices are corrected by

COPIES = 16  # for each number that enters a stage, of a GPU: two pieces' inputs, and what these are added to

MEMORY = 1 << 30  # that states take unless more is allowed; the others are on disk


@dataclass(frozen=True)
class StagedMemory:
    """Bytes that a model takes which is run stage by stage, alone or beside its quantized copy."""

    weights: int  # of the copy, those at work, and of a corrected matrix; models are mapped
    passes: int  # what llama.cpp computes all passes with
    sums: int  # of the largest stage
    states: int  # what is kept of all pieces between matrices
    in_memory: int  # how much of that may be in memory; the rest is on disk
    routed: int  # inputs of all tokens that are sent to experts, of the largest stage
    routed_in_memory: int  # all of that if it fits beside the states, or nothing
    n_states: int  # how many states there are: of each piece one for each pass
    doing: str  # what it is taken for

    @classmethod
    def of(
        cls,
        model: ModelFile,
        running: StagedContext,
        memory: int | None,
        *,
        n_passes: int,
        n_sums: int = 1,
        doing: str,
    ) -> StagedMemory:
        """Add it up.

        memory: bytes that states may take in memory; None: MEMORY.
        n_passes: 1, or 2 with that of a quantized copy. n_sums: stages whose sums are held at a time.
        doing: what it is taken for.
        """
        n_states, n_tokens = n_passes * running.n_pieces, running.n_together
        cache = cache_memory(model, running.n_ctx, n_tokens // running.n_ctx)
        logits = min(LOGITS_BYTES, 4 * n_tokens * running.n_vocab)
        states = n_states * max((stage.n_bytes for stage in running.stages), default=0)
        routed = max(
            (
                routed_bytes(model, stage.matrices[0], stage.n_in, n_passes * running.n_tokens(number))
                for number, stage in enumerate(running.stages)
                if stage.routed
            ),
            default=0,
        )
        widest = max((stage.n_in for stage in running.stages), default=0)
        copies = COPIES * n_tokens * widest * running.on_gpu
        limit = MEMORY if memory is None else memory
        return cls(
            weights=(weights_at_work(model) + _floats(model, running)) * (n_passes - 1),
            passes=n_passes * (cache + activation_memory(model, n_tokens) + logits + copies),
            sums=n_sums
            * max(
                (
                    bytes_of_sums(stage.n_in, running.n_tokens(i) if n_passes > 1 else 0)
                    for i, stage in enumerate(running.stages)
                ),
                default=0,
            ),
            states=states,
            in_memory=min(limit, states),
            routed=routed,
            routed_in_memory=routed if states + routed <= limit else 0,
            n_states=n_states,
            doing=doing,
        )

    @property
    def total(self) -> int:
        """All that is in memory."""
        return self.weights + self.passes + self.sums + self.in_memory + self.routed_in_memory

    @property
    def on_disk(self) -> int:
        """All that is on disk, beside the output."""
        return self.states - self.in_memory + self.routed - self.routed_in_memory

    def describe(self) -> str:
        """Say it in one line."""
        disk = f", and {_gb(self.on_disk)} on disk" if self.on_disk else ""
        copy = f"weights {_gb(self.weights)}, " if self.weights else ""
        kept = _gb(self.in_memory + self.routed_in_memory)
        return (
            f"{self.doing}: about {_gb(self.total)} of memory: {copy}passes {_gb(self.passes)}, sums "
            f"{_gb(self.sums)}, what is kept of the pieces {kept}{disk}"
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

    def tokens_of(self, running: StagedContext, stage: int, folder: Path) -> RoutedTokens:
        """Make room for the inputs of a stage that sends its tokens to experts."""
        return RoutedTokens(running.n_tokens(stage), folder, self.routed_in_memory)

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


def _floats(model: ModelFile, running: StagedContext) -> int:
    """Count the bytes of the largest matrix as floats."""
    wanted = {name for stage in running.stages for name in stage.matrices}
    return max((4 * tensor.n_weights for tensor in model.tensors if tensor.name in wanted), default=0)


def routed_bytes(model: ModelFile, matrix: str, n_in: int, n_tokens: int) -> int:
    """Count the bytes of what tokens bring to a matrix of experts: one input, or one for each expert."""
    made_by_experts = kind_of(matrix).startswith(MADE_BY_EXPERTS)
    return 4 * n_tokens * n_in * (model.hyperparameter("expert_used_count", 1) if made_by_experts else 1)


def _gb(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.2g} GB"
