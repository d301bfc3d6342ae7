"""Tensors of a file that is being written: what a killed run has finished, the next one goes on behind."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from pyquant.files.json import parse_json
from pyquant.files.output_file import output_errors
from pyquant.rounding.plan import Plan
from pyquant.rounding.result import TensorResult


class Checkpoint:
    """A list of finished tensors beside an unfinished file, a line of JSON each, below the file's hash.

    A line is written when its tensor's bytes are. One that a kill cut off is not used.
    """

    def __init__(
        self, path: Path, plan: Plan, partial: Sequence[Path], planned: Mapping[str, TensorResult]
    ) -> None:
        """Read what is there, if it is of the same plan and the unfinished files are there too.

        partial: the unfinished file, or those of all shards.
        planned: by name, what is known of each tensor before it is measured.

        Raises OutputError: the list cannot be written.
        """
        self._path = path
        self._head = hashlib.sha256(b"".join(file.header.header() for file in plan.files)).hexdigest()
        self.done = self._read(planned) if all(path.exists() for path in partial) else {}
        with output_errors(path):
            lines = [json.dumps(asdict(result)) for result in self.done.values()]
            path.write_text("".join(f"{line}\n" for line in [self._head, *lines]))

    def note(self, result: TensorResult) -> None:
        """Note that a tensor is written. Raises OutputError."""
        with output_errors(self._path), self._path.open("a") as file:
            file.write(f"{json.dumps(asdict(result))}\n")

    def _read(self, planned: Mapping[str, TensorResult]) -> dict[str, TensorResult]:
        try:
            head, *lines = self._path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError):
            return {}
        done: dict[str, TensorResult] = {}
        for line in lines[:-1] if head == self._head else []:
            result = _measured(line, planned)
            if result is None:
                break
            done[result.name] = result
        return done


def _measured(line: str, planned: Mapping[str, TensorResult]) -> TensorResult | None:
    """Read a line; None where it is not what can be measured of one of the tensors."""
    try:
        result = TensorResult(**parse_json(line))
        known = planned[result.name]
    except (ValueError, TypeError, KeyError):
        return None
    if replace(result, squared_error=None, squared_weight=None, zeros=None) != known:
        return None
    sums, zeros = (result.squared_error, result.squared_weight), result.zeros
    copied = sums == (None, None) and zeros is None
    summed = all(isinstance(each, float) and 0 <= each < math.inf for each in sums)
    counted = isinstance(zeros, int) and 0 <= zeros <= result.n_weights
    return result if copied or (summed and counted) else None
