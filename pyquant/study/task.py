"""A task of a study: work for one worker, and what comes out of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyquant.llama.cache_types import CacheTypes
from pyquant.schemes import Mode
from pyquant.study.items import Items
from pyquant.study.store import Run
from pyquant.study.study_text import Kind

BYTES_PER_TOKEN = 4  # about

# Told (share done, what is at work).
Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Task:
    """Work for one worker, with one result for each of its models.

    Attributes
    ----------
    name
        What people read, unique in a study.
    metric
        Name of the metric that is measured.
    model
        The unquantized model.
    modes
        How each model is quantized; None stands for the unquantized one.
    files
        Where these models are. A prerequisite has here what it writes.
    runs
        For each of `modes` the run whose result is missing, or None.
    cost
        Estimate of the time it takes, in tokens times weights.
    after
        Names of the tasks that make its files.
    needs
        Those of each model's files and the base's, for each of `modes`; empty for what is no use without any
        of them.
    behind
        Names of tasks that it waits for, whatever comes of them.
    text, kind
        The text that models are run over, and what it is.
    caches
        Types of the cache of each model, where there is a text.
    finished
        File of the samples that are finished, from which a task goes on; None for other metrics.
    options
        Further arguments of the library's function, by name.
    """

    name: str
    metric: str
    model: Path
    modes: tuple[Mode | None, ...]
    files: tuple[Path, ...]
    runs: tuple[Run | None, ...]
    cost: float = 0.0
    after: frozenset[str] = frozenset()
    needs: tuple[frozenset[str], ...] = ()
    behind: frozenset[str] = frozenset()
    text: Path | None = None
    kind: Kind = "text"
    caches: tuple[CacheTypes, ...] = ()
    finished: Path | None = None
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def reads(self) -> list[Path]:
        """List files that it reads: its model and text, and those that modes and options name."""
        options = [value if isinstance(value, list | tuple) else [value] for _, value in self.options]
        of_modes = [(*mode.files(), mode.source) for mode in self.modes if mode]
        named = [self.model, self.text, *itertools.chain(*options, *of_modes)]
        return [file for file in named if isinstance(file, Path)]

    def without(self, failed: Set[str]) -> Task | None:
        """Leave out models that were not made; None: nothing is left to measure."""
        lost = self.after & failed
        kept = [i for i, needed in enumerate(self.needs) if not needed & lost]
        of_models = frozenset().union(*self.needs)
        if not lost <= of_models or not any(self.runs[i] for i in kept):
            return None
        return replace(
            self,
            modes=tuple(self.modes[i] for i in kept),
            files=tuple(self.files[i] for i in kept),
            runs=tuple(self.runs[i] for i in kept),
            caches=tuple(self.caches[i] for i in kept),
            needs=tuple(self.needs[i] for i in kept),
            after=(self.after - of_models).union(*(self.needs[i] for i in kept)),
        )


@dataclass(frozen=True)
class Measured:
    """The result of one run.

    Attributes
    ----------
    result
        Numbers and names, as JSON.
    items
        Columns with a value for each item (a token, say), which are stored beside the JSON.
    costs
        Times and memory, as JSON: a part of the provenance, as they differ from run to run.
    """

    result: dict[str, Any]
    items: Items | None = None
    costs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """Outcome of a task."""

    results: list[Measured]  # one for each of the task's modes
    # Where, when and how long the task ran (seconds), its largest memory (bytes, Python's own included), and
    # the warnings of llama.cpp.
    provenance: dict[str, Any]


def about_n_tokens(n_bytes: int, n_ctx: int, n_chunks: int | None) -> float:
    """Estimate how many tokens the chunks of a text have, by its length."""
    return min(n_bytes / BYTES_PER_TOKEN, (n_chunks or math.inf) * n_ctx)


def of_bytes(progress: Progress) -> Callable[[int, int, str], None]:
    """Adapt `progress` to functions that count bytes and name the tensor at work."""
    return lambda done, total, tensor: progress(done / max(total, 1), tensor)


def of_count(progress: Progress, unit: str = "chunk") -> Callable[[int, int], None]:
    """Adapt `progress` to functions that count chunks, or another unit."""
    return lambda done, total: progress(done / total, f"{unit} {done} of {total}")
