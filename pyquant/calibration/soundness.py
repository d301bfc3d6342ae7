"""Refuse statistics that no run of a model can have given."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pyquant.errors import ModelFileError

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
