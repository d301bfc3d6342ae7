"""Define a scheme: a grid, a fold of its codes, and a table of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.calibration import Calibration
from pyquant.errors import ConfigError
from pyquant.models.q4_t import CodeTable
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_type import TensorType as Type
from pyquant.schemes.table_set import TableSet

GRID_TYPES = {"q4_0": Type.Q4_0, "q8_0": Type.Q8_0}


@dataclass(frozen=True)
class Scheme:
    """Weights to codes and back: a grid, a fold of its codes, and a table of values.

    Attributes
    ----------
    name
        The mode and its parameters.
    grid
        "q4_0" (scale: signed extreme / -8, grid codes -8..7) or "q8_0" (largest magnitude / 127, grid codes
        -127..127).
    values
        (n_codes,) int8: what each code stands for, in multiples of the block's scale. 16 codes, or 256 for
        Q8_0 itself.
    fold
        (256,) uint8: the code that each grid code becomes, indexed by the grid code modulo 256. None where a
        search finds the scale and every weight becomes its nearest value.
    q4_t
        Whether blocks hold the 16 codes and the file a table of the values. Else blocks hold the values.
    tables
        Values of single tensors or kinds of tensors, in the place of `values`.
    """

    name: str
    grid: str
    values: NDArray[np.int8]
    fold: NDArray[np.uint8] | None
    q4_t: bool = False
    tables: TableSet | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError: a part is of another shape or type, or a code has no value."""
        if self.grid not in GRID_TYPES:
            raise ConfigError(f"scheme {self.name}: grid: {self.grid!r}, which is none of {[*GRID_TYPES]}")
        values = np.asarray(self.values)
        if values.dtype != np.int8 or values.ndim != 1:
            raise ConfigError(f"scheme {self.name}: values: {_kind(values)}; (n_codes,) int8 is expected")
        if self.fold is None:
            return
        fold = np.asarray(self.fold)
        if fold.dtype != np.uint8 or fold.shape != (256,):
            raise ConfigError(f"scheme {self.name}: fold: {_kind(fold)}; (256,) uint8 is expected")
        if fold.max() >= len(values):
            raise ConfigError(f"scheme {self.name}: fold: code {fold.max()} has none of {len(values)} values")

    @property
    def stock(self) -> Type:
        """The stock type whose blocks hold the values."""
        return GRID_TYPES[self.grid]

    @property
    def is_stock(self) -> bool:
        """Say whether its blocks are those of the stock type, made as GGML makes them."""
        return self.name == self.grid and not self.q4_t

    def type_of(self, tensor: Tensor, calibration: Calibration | None) -> Type:
        """Give the type of a tensor for which llama.cpp's policy chose the stock type."""
        return self.stock

    @property
    def storage(self) -> Type:
        """The type of the blocks."""
        return Type.Q4_T if self.q4_t else self.stock

    def values_of(self, tensor: str) -> NDArray[np.int8]:
        """Give what the codes of a tensor stand for, by its name: (n_codes,) int8."""
        return self.tables.of(tensor) if self.tables else self.values

    def table_of(self, tensor: str) -> CodeTable:
        """Give what a Q4_T file says of a tensor's codes."""
        return CodeTable(tuple(self.values_of(tensor).tolist()), self.stock)

    @property
    def folding(self) -> NDArray[np.uint8]:
        """`fold`, of a scheme that has one."""
        assert self.fold is not None, f"{self.name} has no fold: it is searched"
        return self.fold

    @property
    def folded(self) -> NDArray[np.int8]:
        """(256,) int8: the value that each grid code ends as, indexed by the grid code modulo 256."""
        return self.values[self.folding]

    def searches(self, tensor: str, calibration: Calibration | None) -> bool:
        """Say whether csrc/gptq rounds a tensor, instead of the grid."""
        return self.fold is None or (calibration is not None and len(self.values) <= 16)

    def searched(
        self, tensor: str, factor: _core.Factor, rows: NDArray[np.float64] | None = None
    ) -> _core.Encoder:
        """Make the encoder that rounds a tensor to the values at the best scale, whatever the grid.

        Parameters
        ----------
        tensor
            Its name.
        factor
            What is known of its input.
        rows
            (n_rows,) how much squared errors of each row count, for schemes of which `weighs_rows` is true.
        """
        values = self.values_of(tensor)
        used = np.unique(values if self.fold is None else self.folded)
        by_value = np.argsort(values)
        by_storage: dict[Type, NDArray[Any]] = {
            Type.Q4_0: used + 8,
            Type.Q8_0: used.view(np.uint8),
            Type.Q4_T: by_value[np.searchsorted(values, used, sorter=by_value)],
        }
        codes = by_storage[self.storage]
        storage = getattr(_core.Storage, self.storage.name)
        return _core.gptq_table_encoder(storage, used, codes.astype(np.uint8), values, factor)

    @property
    def weighs_rows(self) -> bool:
        """Say whether rows that count more than others are rounded more finely."""
        return False

    @property
    def weighs_tensors(self) -> bool:
        """Say whether it wants a guess of how much errors in whole tensors count."""
        return False

    def kernel(self) -> _core.Scheme:
        """Make the scheme that the C++ kernels take; it has a fold."""
        grid = getattr(_core.Grid, self.grid.upper())
        storage = getattr(_core.Storage, self.storage.name)
        if self.q4_t:
            return _core.Scheme(grid, storage, self.folding.astype(np.int8), self.values)
        return _core.Scheme(grid, storage, self.folded)


def _kind(array: NDArray[Any]) -> str:
    return f"{array.shape} {array.dtype}"


def grid_codes() -> NDArray[np.int8]:
    """Give the grid code at each index of a fold: (256,) int8."""
    return np.arange(256).astype(np.uint8).view(np.int8)
