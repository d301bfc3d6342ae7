"""Blocks with one scale whose codes stand for the values of a table: what schemes are stored in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyquant.models.tensor_type import TensorType as Type
from tests.twins.formats.base import OneScale, nibbles
from tests.twins.scale_search import Bytes, TableLevels


class TableFormat(OneScale):
    """The values of a table, in blocks of a storage type.

    Parameters
    ----------
    storage : Type
        Q4_0, Q8_0 or Q4_T: the type whose blocks hold the codes.
    values : (n,) int8
        What codes stand for, ascending; n is at most 16.
    codes : (n,) uint8
        The code of each value.
    """

    def __init__(self, storage: Type, values: NDArray[np.int8], codes: NDArray[np.uint8]) -> None:
        self._storage = storage
        self.levels = TableLevels(values, codes)

    def pack(self, codes: Bytes) -> Bytes:
        return codes if self._storage is Type.Q8_0 else nibbles(codes)
