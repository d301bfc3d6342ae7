"""Refuse statistics that no run of a model can have given, and pass over what no sums can hold."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import ModelFileError, Tell

LARGEST = 1e24  # of a mean square or a count; products of two stay within float32's range, with room for sums


def check_values(path: Path, what: str, values: NDArray[Any], *, least: float = 0) -> None:
    """Refuse values that are not finite, below `least`, or above `LARGEST`.

    Parameters
    ----------
    path
        The file they are from.
    what
        What they are, in the plural, for the message.
    values
        Numbers of any shape.
    least
        The least of them that makes sense: 0 for squares and counts.

    Raises
    ------
    ModelFileError
        The message names file, values and what is wrong.
    """
    if not values.size:
        return
    low, high = float(values.min()), float(values.max())  # NaN if one of them is
    if not math.isfinite(low) or not math.isfinite(high):
        raise ModelFileError(f"{path}: {what} are not finite: the file is damaged, or its model was")
    if low < least:
        raise ModelFileError(f"{path}: {what} are negative, {low:g} among them: the file is damaged")
    if high > LARGEST:
        raise ModelFileError(f"{path}: {what} are too large, {high:g} among them: the file is damaged")


class SoundTokens:
    """Lets tokens count for nothing in which a model's numbers are not finite, or too large to be squared.

    tell: told of the first of them.
    """

    def __init__(self, tell: Tell | None) -> None:
        self._tell = tell

    def of(self, name: str, *of_tokens: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Give (n_tokens, ...) arrays of the same tokens; in all of them zeros for those that are not sound.

        name: of the matrix that they enter.
        """
        most = np.float32(math.sqrt(LARGEST))
        # Neither holds of NaN.
        if all(-most <= values.min(initial=0) and values.max(initial=0) <= most for values in of_tokens):
            return [*of_tokens]
        if self._tell:
            self._tell(
                f"{name}: what enters is not finite, or too large, of some tokens: they are passed over"
            )
            self._tell = None
        sound = np.logical_and.reduce(
            [(np.abs(values) <= most).reshape(len(values), -1).all(axis=1) for values in of_tokens]
        )
        return [
            np.where(sound.reshape(-1, *[1] * (values.ndim - 1)), values, np.float32(0))
            for values in of_tokens
        ]
