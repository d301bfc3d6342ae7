"""Sums of some columns, told apart by text: how much texts differ says how far Hessians are to be shrunk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.hessian_file import has_moments
from pyquant.calibration.panels import places
from pyquant.calibration.shrinkage import BetweenTexts, sampled_columns
from pyquant.calibration.sums import TEXTS, Arrays, kept_file, not_usable
from pyquant.files.npz import read_npz, replace_npz

KEY, ENDED = "key", "ended"  # in the file: what run it is of, and the texts that are in it


class TextMoments:
    """What a collector has summed up of each text, of the columns that `sampled_columns` chooses.

    It is kept at the end of each text for a run that goes on later, beside the Hessian file.
    """

    def __init__(self, output: Path, collector: _core.Collector, key: bytes) -> None:
        """Take up what was kept of the same run.

        output: the Hessian file. key: tells runs apart.
        Raises ModelFileError: what was kept cannot be used.
        """
        self._output, self._path, self._collector = output, kept_file(output, TEXTS), collector
        self._key = np.frombuffer(key, np.uint8)
        self._inputs = {i.matrices[0]: i for i in collector.inputs if has_moments(i)}
        self._of_inputs = {
            name: BetweenTexts(len(sampled_columns(i.n_in))) for name, i in self._inputs.items()
        }
        self._n_ended = self._n_kept = 0
        if self._path.exists():
            try:
                self._take(read_npz(self._path))
            except (OSError, ValueError, KeyError) as error:
                raise not_usable(output, self._path, error) from None

    def end_text(self, batch: int) -> None:
        """Take the sums at the end of a text, or those that a run took which was interrupted later.

        batch: the first one of the next text. Raises ModelFileError: what was kept is gone.
        """
        self._n_ended += 1
        if self._n_ended > self._n_kept:
            self._take_text(batch)
        if self._collector.batch < batch:  # what is kept may be ahead of the spool: it is written before it
            self._collector.checkpoint(batch)

    def _take_text(self, batch: int) -> None:
        if self._collector.batch > batch:
            raise not_usable(self._output, self._path, f"sums of text {self._n_ended} are not in it")
        arrays: Arrays = {KEY: self._key, ENDED: np.array(self._n_ended)}
        for name, between in self._of_inputs.items():
            i = self._inputs[name]
            sums = self._collector.sums(i, 0)[i.n_in :][_pairs(i.n_in)]
            between.add(sums - between.total, self._collector.count(i, 0) - between.count)
            arrays |= {f"{name}.{what}": np.asarray(its) for what, its in vars(between).items()}
        replace_npz(self._path, arrays)

    def shares(self, inputs: Sequence[_core.Input]) -> dict[str, float]:
        """Compute by input which share of the diagonal is best; none of experts, and none without texts."""
        names = [i.matrices[0] for i in inputs] if self._n_ended else []
        return {name: self._of_inputs[name].share for name in names if name in self._of_inputs}

    def _take(self, arrays: Arrays) -> None:
        if not np.array_equal(arrays[KEY], self._key):
            return  # another run's, which this one's replaces
        for name, between in self._of_inputs.items():
            for what, empty in vars(between).items():
                its = arrays[f"{name}.{what}"]
                if its.shape != np.shape(empty):
                    raise ValueError(f"{name} is not what this model has")
                setattr(between, what, its if its.shape else its.item())
        self._n_kept = int(arrays[ENDED])


def _pairs(n_in: int) -> NDArray[np.intp]:
    columns = sampled_columns(n_in)
    return places(n_in, columns[:, None], columns)
