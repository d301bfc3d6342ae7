"""Say how often each code of a model occurs, and how long runs of the zero code are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant.formulas import RUN_BINS, entropy, geometric_runs, shares
from pyquant.models.codebook import Codebook

SCHEMA = "pyquant.histogram/1"
SCALE_BITS = 16 / 32  # an fp16 scale for each 32 codes


@dataclass(frozen=True)
class CodeCounts:
    """Counts over the codes of one tensor, or of all tensors of one type.

    Attributes
    ----------
    name
        The tensor's, or the type's.
    codebook
        What the codes stand for.
    counts
        (n,) uint64: how often each code occurs, in the order of `codebook`.
    runs
        (16,) uint64: runs of the zero code of length 1..15 and of 16 or more. A run ends with its row.
    """

    name: str
    codebook: Codebook
    counts: NDArray[np.uint64]
    runs: NDArray[np.uint64]

    @property
    def n_codes(self) -> int:
        """All codes that were counted."""
        return int(self.counts.sum())

    @property
    def zero_share(self) -> float:
        """The share of the zero code."""
        return float(self.counts[self.codebook.zero]) / max(self.n_codes, 1)

    @property
    def entropy(self) -> float:
        """Order-0, in bits per code: no coder of single codes can go below it."""
        return entropy(self.counts)

    @property
    def isolated_share(self) -> float:
        """The share of runs of length 1."""
        return float(shares(self.runs)[0])

    def to_json(self) -> dict[str, Any]:
        """Give the counts as JSON. Of 256 codes, those that do not occur are left out."""
        used = self.counts > 0 if len(self.counts) > 16 else np.ones(len(self.counts), bool)
        book = self.codebook
        return {
            "name": self.name,
            "type": book.name,
            "n_codes": self.n_codes,
            "codes": [
                {"code": int(code), "value": int(value), "count": int(count), "share": float(share)}
                for code, value, count, share in zip(
                    book.codes[used], book.values[used], self.counts[used], shares(self.counts)[used]
                )
            ],
            "entropy": self.entropy,
            "entropy_bits_per_weight": self.entropy + SCALE_BITS,
            "zero_code": int(book.codes[book.zero]),
            "zero_value": int(book.values[book.zero]),
            "zero_share": self.zero_share,
            "zero_runs": {
                "lengths": [*map(str, range(1, RUN_BINS)), f">={RUN_BINS}"],
                "counts": self.runs.tolist(),
                "shares": shares(self.runs).tolist(),
                "geometric": geometric_runs(self.zero_share).tolist(),
            },
        }


@dataclass(frozen=True)
class Histogram:
    """Counts of the codes of a model.

    Attributes
    ----------
    model
        Its path.
    mode, parameters
        The quantizer that the model was seen through; None and {} if it was seen as it is.
    totals
        All counted tensors, by type.
    tensors
        Every counted tensor.
    skipped
        The type of every tensor that was not counted, by name.
    """

    model: str
    mode: str | None
    parameters: dict[str, str | int]
    totals: list[CodeCounts]
    tensors: list[CodeCounts]
    skipped: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Give the histogram as `pyquant histogram --json` prints it, schema pyquant.histogram/1."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "mode": self.mode,
            "parameters": self.parameters,
            "totals": [total.to_json() for total in self.totals],
            "tensors": [tensor.to_json() for tensor in self.tensors],
            "skipped": self.skipped,
        }
