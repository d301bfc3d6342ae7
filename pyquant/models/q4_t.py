"""Read and write the tables of Q4_T tensors: what their 16 codes stand for, in a file's metadata."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from gguf import LlamaFileType
from numpy.typing import NDArray

from pyquant import _core
from pyquant.models.tensor_type import TensorType as Type

PREFIX = "pyquant.q4_t."
VERSION = 2  # csrc/ggml/table.cpp reads version 1 too

# general.file_type of a file with such tensors, and of the stock file that it equals.
Q4_T_FILE_TYPE = int(Type.Q4_T)
STOCK_FILE_TYPES = {Type.Q4_0: LlamaFileType.MOSTLY_Q4_0, Type.Q8_0: LlamaFileType.MOSTLY_Q8_0}


@dataclass(frozen=True)
class CodeTable:
    """Values that the codes of a Q4_T tensor stand for."""

    values: tuple[int, ...]  # 16 integers in multiples of a block's scale
    stock: Type  # the stock type whose blocks hold the values, to the same weights

    @classmethod
    def read(cls, header: _core.Gguf, tensor: str) -> CodeTable:
        """Read the table of a tensor. Raises ValueError, which names the tensor and what is wrong."""
        values, stock = header.table(tensor)
        return cls(tuple(values.tolist()), Type[stock])

    def array(self) -> NDArray[np.int8]:
        """Give the values as (16,) int8."""
        return np.array(self.values, np.int8)


def table_entries(tables: Iterable[tuple[str, CodeTable]]) -> dict[str, str | int]:
    """Make the metadata that give tensors their tables, by the tensors' names; all of one stock type.

    Tables are texts because llama.cpp's quantizer adds no arrays to what it writes.
    """
    entries: dict[str, str | int] = {}
    for name, table in tables:
        entries[f"{PREFIX}version"] = VERSION
        entries[f"{PREFIX}stock"] = table.stock.name
        entries[f"{PREFIX}table.{name}"] = " ".join(map(str, table.values))
    return entries


def is_table_entry(key: str) -> bool:
    """Say whether a metadata key belongs to the tables."""
    return key.startswith(PREFIX)
