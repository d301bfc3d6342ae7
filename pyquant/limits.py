"""What people may give, such as the range of each number: one definition for options, TOML and functions."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from numbers import Real
from typing import Any

from pyquant.errors import ConfigError


@dataclass(frozen=True)
class Limit:
    """A range of numbers.

    Parameters
    ----------
    low, high : smallest and largest number.
    whole : whether only integers fit.
    above_low, below_high : whether `low` or `high` itself is left out.
    """

    low: int | float
    high: int | float
    whole: bool = True
    above_low: bool = False
    below_high: bool = False

    def __str__(self) -> str:
        low = f"above {self.low:g}" if self.above_low else f"from {self._shown(self.low)}"
        high = f"to below {self.high:g}" if self.below_high else f"to {self._shown(self.high)}"
        return f"a {'whole ' if self.whole else ''}number {low} {high}"

    def _shown(self, bound: float) -> str:
        return f"{bound:,}" if self.whole else f"{bound:g}"

    def parse(self, text: str | float) -> Any:
        """Reads a number, as typer's `parser` does. Raises ValueError, which says what would fit."""
        try:
            value = int(text) if self.whole else float(text)
        except (ValueError, OverflowError):
            raise ValueError(f"{text!r} is not {self}") from None
        if not self._fits(value):
            raise ValueError(f"{text} is not {self}")
        return value

    def check(self, name: str, value: Any) -> None:
        """Refuses what does not fit. Raises ConfigError, which names the parameter."""
        if not self._fits(value):
            raise ConfigError(f"{name}: expected {self}, got {value}")

    def _fits(self, value: Any) -> bool:
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        return is_number and self._holds(value)

    def _holds(self, value: float) -> bool:
        # Written so that NaN, of which no comparison holds, does not fit.
        above = value > self.low if self.above_low else value >= self.low
        below = value < self.high if self.below_high else value <= self.high
        return above and below and (not self.whole or value == math.floor(value))

    @property
    def interval(self) -> Any:
        """Annotation that tells pydantic of the range: `Annotated[float, limits.STEP.interval]`."""
        from annotated_types import Interval  # options need neither it nor pydantic

        return Interval(
            gt=self.low if self.above_low else None,
            ge=None if self.above_low else self.low,
            lt=self.high if self.below_high else None,
            le=None if self.below_high else self.high,
        )


# Those that llama.cpp's tools take for --cache-type-k and --cache-type-v.
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")

THREADS = Limit(1, 512)  # llama.cpp takes no more
GPU = Limit(0, 9999)  # layers, and numbers of devices
GPU_SHARE = Limit(0, 1e6, whole=False)
TOKENS = Limit(1, 1 << 20)  # of a prompt or an answer
CTX = Limit(8, 1 << 20)  # tokens in a chunk: its second half is scored
CALIBRATION_CTX = Limit(16, 1 << 20)
CHUNKS = Limit(1, 2**31 - 1)
SENSITIVITY_CTX, SENSITIVITY_CHUNKS = 256, 4  # what each tensor is tried on where nothing is said
QUESTIONS = Limit(1, 100_000_000)
ROUNDS = Limit(1, 100_000)
PROCESSES = Limit(1, 4096)
RADIUS = Limit(0, 7)  # magnitudes of Q4_0's codes, but for -8
STEP = Limit(6e-8, 1e3, whole=False)  # the least number of F16, in which scales are stored
DAMPENING = Limit(0, 10, whole=False, above_low=True)
SEQUENCES = Limit(1, 256)  # what llama.cpp computes at once
SHARE = Limit(0, 1, whole=False, below_high=True)
WEIGHT = Limit(0, 1e6, whole=False, above_low=True)
BITS = Limit(0, 32, whole=False, above_low=True)  # per weight
TEMPERATURE = Limit(0, 100, whole=False)
TOP_K = Limit(0, 1 << 20)  # 0: all tokens
TOP_P = Limit(0, 1, whole=False, above_low=True)
MIN_P = Limit(0, 1, whole=False)
PENALTY_REPEAT = Limit(0, 100, whole=False, above_low=True)
PENALTY = Limit(-100, 100, whole=False)
PENALTY_LAST = Limit(0, 1 << 24)  # 0: all tokens
LAST_TOKENS = 64  # where nothing is said
SEED = Limit(0, 2**32 - 1)  # as llama.cpp has them
SAMPLES = Limit(1, 10_000_000)
ATTEMPTS = Limit(1, 10_000_000)  # for a text
EXACT_ATTEMPTS = 1000  # where nothing is said
PARALLEL = Limit(1, 255)  # sequences; llama.cpp has 256, of which one keeps the prompt
DRAFT_TOKENS = Limit(0, 1 << 10)  # of a draft
DRAFT_DEPTH = Limit(4, 1 << 20)  # tokens that target and draft have read when they are measured
MEASURED_BEHIND = 64  # of them, where nothing is said


def parse_size(name: str, size: str | int) -> int:
    """Read a size in bytes: "800MB", "3.5gb", "2 GiB", 1500000.

    Units are decimal, or binary with an i; upper or lower case does not matter.

    name: where it was given, to be named in errors.
    size: the text, or the number of bytes.
    Raises ConfigError.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([kmgt]?)(i?)b?", str(size).strip(), re.IGNORECASE)
    if not match or isinstance(size, bool) or (match[3] and not match[2]):
        raise ConfigError(f"{name}: {size!r} is not a size such as 800MB, 3.5GB or 2GiB")
    power = "kmgt".index(match[2].lower()) + 1 if match[2] else 0
    n_bytes = float(match[1]) * (1024 if match[3] else 1000) ** power
    if not 1 <= n_bytes < 2**63:
        raise ConfigError(f"{name}: expected a size of 1 byte or more, and below 8 EiB, got {size!r}")
    return round(n_bytes)
