"""Tensors of a file that is being written: what a killed run has finished, the next one goes on behind."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from pyquant.files.output_file import output_errors
from pyquant.rounding.plan import Plan
from pyquant.rounding.result import TensorResult


class Checkpoint:
    """A list of finished tensors beside an unfinished file, a line of JSON each, below the file's hash.

    A line is written when its tensor's bytes are. One that a kill cut off is not used.
    """

    def __init__(self, path: Path, plan: Plan, partial: Path) -> None:
        """Read what is there, if it is of the same plan and the unfinished file is there too.

        Raises OutputError: the list cannot be written.
        """
        self._path = path
        self._head = hashlib.sha256(plan.header.header()).hexdigest()
        self.done = self._read() if partial.exists() else {}
        with output_errors(path):
            lines = [json.dumps(asdict(result)) for result in self.done.values()]
            path.write_text("".join(f"{line}\n" for line in [self._head, *lines]))

    def note(self, result: TensorResult) -> None:
        """Note that a tensor is written. Raises OutputError."""
        with output_errors(self._path), self._path.open("a") as file:
            file.write(f"{json.dumps(asdict(result))}\n")

    def _read(self) -> dict[str, TensorResult]:
        try:
            head, *lines = self._path.read_text().split("\n")
        except (OSError, UnicodeDecodeError):
            return {}
        done: dict[str, TensorResult] = {}
        for line in lines[:-1] if head == self._head else []:
            try:
                result = TensorResult(**json.loads(line))
            except (ValueError, TypeError):
                break
            done[result.name] = result
        return done
