"""Estimate the memory and disk that rounding takes while models run stage by stage, before it begins."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyquant import _core
from pyquant.calibration.routed_tokens import RoutedTokens
from pyquant.errors import NotEnoughMemory, OutputError
from pyquant.llama.cache import cache_memory
from pyquant.llama.context_memory import activation_memory
from pyquant.machine.memory import available_memory
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_name import MADE_BY_EXPERTS, kind_of
from pyquant.rounding.correction import ENOUGH
from pyquant.rounding.factors import BYTES
from pyquant.rounding.staged_context import LOGITS_BYTES, StagedContext

CORRECTING = 8  # for each element of a stage's Hessian: sums and equations that its matrices are corrected by

COPIES = 16  # for each number that enters a stage, of a GPU: two pieces' inputs, and what these are added to

UNEVEN = 2  # times the mean: the most tokens that an expert is expected to get

MEMORY = 1 << 29  # that states take unless more is allowed; the others are on disk


@dataclass(frozen=True)
class StagedMemory:
    """Bytes that a model takes which is run stage by stage, alone or beside its quantized copy."""

    weights: int  # of the copy, those at work, and of a corrected matrix, or logits; models are mapped
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
        by_name = {tensor.name: tensor for tensor in model.tensors}
        weights, sums = most_at_work(
            model,
            (
                (stage.n_in, [by_name[name] for name in stage.matrices], running.n_tokens(i) * (n_passes > 1))
                for i, stage in enumerate(running.stages)
            ),
            n_sums,
            n_passes * min(LOGITS_BYTES, 4 * n_tokens * running.n_vocab),
        )
        copies = COPIES * n_tokens * widest * running.on_gpu
        limit = MEMORY if memory is None else memory
        return cls(
            weights=weights,
            passes=n_passes * (cache + activation_memory(model, n_tokens) + copies),
            sums=sums,
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

        Raises NotEnoughMemory, OutputError: with the sizes.
        """
        free = available_memory()
        if free is not None and self.total > free:
            raise NotEnoughMemory(
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


def most_at_work(
    model: ModelFile,
    stages: Iterable[tuple[int, Sequence[Tensor], int]],
    n_sums: int = 1,
    logits: int = 0,
) -> tuple[int, int]:
    """Count the bytes of weights, and of sums, of the stage that takes the most of both while it is rounded.

    stages: how long an input is, what it enters, and by how many tokens that is corrected; 0: without a copy.
    n_sums: stages whose sums are held at a time. logits: bytes of those that all passes compute at the output
    matrix, where they are counted among the weights.
    """
    n_used = model.hyperparameter("expert_used_count", 1)
    of_layers: dict[int, int] = defaultdict(int)
    for tensor in model.tensors:
        of_layers[tensor.layer] += tensor.n_bytes

    def of_stage(n_in: int, matrices: Sequence[Tensor], n_tokens: int) -> tuple[int, int]:
        n_experts = matrices[0].n_experts
        of_expert = n_tokens * min(1.0, UNEVEN * n_used / n_experts)
        corrected = of_expert >= ENOUGH * n_in
        ahead = n_experts > 1  # the next expert's factor is made while one is rounded
        sums = n_sums * (BYTES * (1 + ahead) + CORRECTING * corrected) * n_in**2
        layer = matrices[0].layer
        if not n_tokens:
            return logits * (layer < 0), sums
        copy = of_layers[layer] if layer >= 0 else sum(tensor.n_bytes for tensor in matrices)
        at_once = sum if n_experts > 1 else max  # experts' matrices are rounded together
        beside = corrected * 4 * at_once(tensor.n_weights for tensor in matrices) + logits * (layer < 0)
        return copy + beside, sums

    return max((of_stage(*stage) for stage in stages), key=sum, default=(0, 0))


def routed_bytes(model: ModelFile, matrix: str, n_in: int, n_tokens: int) -> int:
    """Count the bytes of what tokens bring to a matrix of experts: one input, or one for each expert."""
    made_by_experts = kind_of(matrix).startswith(MADE_BY_EXPERTS)
    return 4 * n_tokens * n_in * (model.hyperparameter("expert_used_count", 1) if made_by_experts else 1)


def _gb(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.2g} GB"
