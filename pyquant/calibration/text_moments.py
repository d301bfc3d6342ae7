"""Sums of some columns for each text alone: how much texts differ says how far Hessians are to be shrunk."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.hessian_file import has_moments
from pyquant.calibration.panels import places
from pyquant.calibration.shrinkage import sampled_columns, shrinkage_of_texts
from pyquant.calibration.sums import Arrays, kept_file, taken_once


class TextMoments:
    """What a collector has summed up at the end of each text, of the columns that `sampled_columns` chooses.

    output: the Hessian file, beside which this is kept for a run that goes on later.
    """

    def __init__(self, output: Path, collector: _core.Collector) -> None:
        self._output, self._collector = output, collector
        self._sums: list[Arrays] = []  # up to each text's end

    def end_text(self, batch: int) -> None:
        """Take the sums at the end of a text. Raises ModelFileError: what was kept cannot be used.

        batch: the first one of the next text.
        """
        called = f"text-{len(self._sums)}"
        take, check = partial(_sampled, self._collector), partial(_checked, self._collector)
        self._sums.append(taken_once(self._output, called, self._collector, batch, take, check))

    def shares(self, inputs: Sequence[_core.Input]) -> dict[str, float]:
        """Compute by input which share of the diagonal is best; none of experts, and none of one text."""
        shares: dict[str, float] = {}
        for i in inputs:
            name = i.matrices[0]
            if not self._sums or name not in self._sums[0]:
                continue
            n = np.diff([0, *(sums[f"{name}.count"].item() for sums in self._sums)])
            sums = np.diff(np.stack([sums[name] for sums in self._sums]), axis=0, prepend=0)
            known = n > 0
            moments = (sums[known] / n[known, None, None]).astype(np.float32)
            shares[name] = shrinkage_of_texts(moments, n[known]) if known.sum() > 1 else 0.0
        return shares

    def forget(self) -> None:
        """Remove what is kept."""
        for number in range(len(self._sums)):
            kept_file(self._output, f"text-{number}").unlink()


def _inputs(collector: _core.Collector) -> list[_core.Input]:
    return [i for i in collector.inputs if has_moments(i)]


def _sampled(collector: _core.Collector) -> Arrays:
    arrays: Arrays = {}
    for i in _inputs(collector):
        name = i.matrices[0]
        arrays[name] = collector.sums(i, 0)[i.n_in :][_pairs(i.n_in)].astype(np.float64)
        arrays[f"{name}.count"] = np.array(collector.count(i, 0))
    return arrays


def _checked(collector: _core.Collector, arrays: Arrays) -> Arrays:
    for i in _inputs(collector):
        name, n = i.matrices[0], min(i.n_in, len(sampled_columns(i.n_in)))
        sums, count = arrays[name], arrays[f"{name}.count"]
        if (sums.shape, sums.dtype, count.shape) != ((n, n), np.float64, ()) or not np.isfinite(count):
            raise ValueError(f"{name} is not what this model has")
    return arrays


def _pairs(n_in: int) -> NDArray[np.intp]:
    columns = sampled_columns(n_in)
    return places(n_in, columns[:, None], columns)
