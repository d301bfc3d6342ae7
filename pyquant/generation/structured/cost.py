"""Measure what it takes to generate completions: time, split into what it is spent on, and memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyquant.generation.sampling.result import Sample, Times
from pyquant.machine.memory import peak_memory


@dataclass
class Cost:
    """Time and memory of the completions of a technique, at their greatest length."""

    times: Times = field(default_factory=Times)  # parts of the seconds
    n_completions: int = 0
    n_tokens: int = 0  # with those that ended completions
    seconds: float = 0.0  # by the clock
    peak_memory: int = 0  # bytes, the most of this process so far

    def of(self, samples: Iterator[Sample]) -> Iterator[Sample]:
        """Yield the completions that are generated with `times`, and add up what they take."""
        begin = time.perf_counter()
        for sample in samples:
            self.n_completions += 1
            self.n_tokens += len(sample.log_p)
            self.seconds += time.perf_counter() - begin
            yield sample
            begin = time.perf_counter()
        self.seconds += time.perf_counter() - begin
        self.peak_memory = peak_memory()

    def to_json(self) -> dict[str, Any]:
        """Return it per completion, in seconds; at least one completion has to be there."""
        return {
            "seconds_per_text": self.seconds / self.n_completions,
            "forward_seconds": self.times.forward / self.n_completions,
            "mask_seconds": self.times.mask / self.n_completions,
            "sampling_seconds": self.times.sampling / self.n_completions,
            "tokens_per_second": self.n_tokens / self.seconds,
            "peak_memory": self.peak_memory,
        }


def slowdown(rates: Mapping[str, float]) -> float | None:
    """Return how many times as long a token takes under the grammar as without; None where that is not known.

    rates: tokens per second, by technique.
    """
    free, grammar = rates.get("free"), rates.get("grammar")
    return free / grammar if free and grammar else None
