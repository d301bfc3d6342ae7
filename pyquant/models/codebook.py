"""Say what the codes of a tensor stand for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_type import TensorType as Type

# Values that the nibbles of an IQ4_NL block stand for (ggml-common.h, kvalues_iq4nl).
IQ4_NL_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)


@dataclass(frozen=True)
class Codebook:
    """Values that the codes of a type stand for."""

    storage: Type  # the type of the blocks that hold the codes
    stored: NDArray[np.int64]  # (n,) int64: the codes as blocks hold them
    values: NDArray[np.int8]  # (n,) int8: what they stand for, in multiples of the block's scale
    # Whether the values are the 16 of a table, stored in Q8_0 blocks. (Q4_T blocks hold a table's codes.)
    table: bool = False

    @classmethod
    def of_table(cls, values: NDArray[np.int8]) -> Codebook:
        return cls(Type.Q8_0, values.astype(np.int64) % 256, values, table=True)

    @classmethod
    def of_q4_t(cls, values: NDArray[np.int8]) -> Codebook:
        return cls(Type.Q4_T, np.arange(16), values)

    @property
    def name(self) -> str:
        """The type, and whether its values are of a table: "Q8_0 table"."""
        return f"{self.storage.name} table" if self.table else self.storage.name

    @property
    def codes(self) -> NDArray[np.int64]:
        """(n,) int64: how the codes are written: 0..15, and of Q8_0 itself -128..127."""
        return np.arange(16) if len(self.values) == 16 else self.values.astype(np.int64)

    @property
    def zero(self) -> int:
        """The index of value 0; if there is none, of the value nearest to 0."""
        return int(np.abs(self.values.astype(int)).argmin())


CODEBOOKS = {
    Type.Q4_0: Codebook(Type.Q4_0, np.arange(16), np.arange(-8, 8, dtype=np.int8)),
    Type.IQ4_NL: Codebook(Type.IQ4_NL, np.arange(16), IQ4_NL_VALUES),
    Type.Q8_0: Codebook(Type.Q8_0, np.arange(-128, 128) % 256, np.arange(-128, 128).astype(np.int8)),
}


def codebook(type_: Type, table: NDArray[np.int8] | None) -> Codebook | None:
    """Give the codebook of a type.

    table: (16,) int8: of Q4_T tensors their table; of Q8_0 tensors the table that their file was made with.
    Returns None if the type's codes cannot be counted.
    """
    if table is not None:
        if type_ == Type.Q4_T:
            return Codebook.of_q4_t(table)
        if type_ == Type.Q8_0 and len(table) == 16:
            return Codebook.of_table(table)
    return CODEBOOKS.get(type_)


def tensor_codebook(tensor: Tensor, stored: NDArray[np.int8] | None) -> Codebook | None:
    """Give the codebook of a tensor of a file.

    Returns None if the codes cannot be counted.
    """
    return codebook(tensor.type, tensor.table.array() if tensor.table else stored)


def stored_table(model: ModelFile) -> NDArray[np.int8] | None:
    """Read the table that a file's metadata say its Q8_0 blocks were made with.

    Returns (16,) int8: None if they name none.
    Raises ModelFileError: they are not 16 integers in -128..127.
    """
    text = model.get("pyquant.table.values")
    if text is None:
        return None
    try:
        values = np.array([int(value) for value in text.split()])
        if len(values) != 16 or np.any((values < -128) | (values > 127)):
            raise ValueError
    except (AttributeError, ValueError):
        raise ModelFileError(
            f"{model.path}: pyquant.table.values is {text!r}, expected 16 integers in -128..127"
        ) from None
    return values.astype(np.int8)
