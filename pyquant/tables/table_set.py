"""Tables of 16 values for a model's tensors: one for all, for each kind of tensor, or for each tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import ConfigError
from pyquant.files.toml import read_toml
from pyquant.models.tensor_name import kind_of
from pyquant.tables.fold_table import ascending


@dataclass(frozen=True)
class TableSet(Mapping[str, NDArray[np.int8]]):
    """By tensor: its own table, else its kind's, else the one for all.

    values: (16,) int8 ascending, for all. by_name: others, by tensor or kind; the kind of
    'blk.3.attn_q.weight' is 'attn_q'.
    """

    name: str
    values: NDArray[np.int8]
    by_name: Mapping[str, NDArray[np.int8]] = field(default_factory=dict)

    def __getitem__(self, tensor: str) -> NDArray[np.int8]:
        own = self.by_name.get(tensor)
        return self.by_name.get(kind_of(tensor), self.values) if own is None else own

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)

    def to_toml(self) -> str:
        """As `read_table_set` reads it."""
        lines = [f'name = "{self.name}"', f"values = {self.values.tolist()}"]
        if self.by_name:
            lines += ["", "[tables]"]
            lines += [f'"{name}" = {values.tolist()}' for name, values in self.by_name.items()]
        return "\n".join(lines) + "\n"


def read_table_set(name: str) -> TableSet:
    """Tables from TOML: `values`, and optionally `name` and [tables] by tensor or kind of tensor.

    Raises ConfigError, naming the file and the key.
    """
    path = Path(name)
    content = read_toml(path, "table")
    unknown = set(content) - {"name", "values", "lower", "tables"}
    if unknown:
        raise ConfigError(f"{path}: unknown key {min(unknown)!r}; known: name, values, tables")
    if "values" not in content:
        raise ConfigError(f"{path}: the key 'values' is missing: 16 integers in -128..127, ascending")
    tables = content.get("tables", {})
    if not isinstance(tables, dict):
        raise ConfigError(f"{path}: tables: expected a table of tables, by tensor or kind of tensor")
    return TableSet(
        str(content.get("name", path.stem)),
        ascending(path, "values", content["values"]).astype(np.int8),
        {key: ascending(path, f"tables.{key}", given).astype(np.int8) for key, given in tables.items()},
    )
