"""Tensors of a file that is being written: what a killed run has finished, the next one goes on behind."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from pyquant.errors import Tell
from pyquant.files.journal import Journal
from pyquant.files.json import parse_json
from pyquant.machine.environment import build_and_cpu
from pyquant.models.header import EQUALIZED_FROM
from pyquant.rounding.plan import Plan
from pyquant.rounding.result import TensorResult


class Checkpoint:
    """Finished tensors, listed beside an unfinished file: a line is written when its tensor's bytes are.

    Attributes
    ----------
    done
        What is known of those that were there, by name.
    """

    def __init__(
        self,
        path: Path,
        plan: Plan,
        partial: Sequence[Path],
        planned: Mapping[str, TensorResult],
        tell: Tell | None = None,
    ) -> None:
        """Read what is there, if it is of the same plan and the unfinished files are there too.

        partial: the unfinished file, or those of all shards.
        planned: by name, what is known of each tensor before it is measured.
        tell: told of a list that is not used.

        Raises OutputError: the list cannot be written.
        """
        there = all(path.exists() for path in partial)
        source = plan.model.get(EQUALIZED_FROM) or plan.model.sha256()
        statistics = plan.calibration.digest if plan.calibration else b""  # headers name their file alone
        made_of = [
            str(source).encode(),
            statistics,
            build_and_cpu().encode(),
            *(file.header.header() for file in plan.files),
        ]
        self._lines = Journal(path, made_of, lambda line: _measured(line, planned) if there else None, tell)
        self.done = {result.name: result for result in self._lines.entries}

    def note(self, result: TensorResult) -> None:
        """Note that a tensor is written. Raises OutputError."""
        self._lines.add(json.dumps(asdict(result)))


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
