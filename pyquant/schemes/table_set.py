"""Tables of 16 values for a model's tensors: one for all, for each kind of tensor, or for each tensor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import ConfigError, did_you_mean
from pyquant.files.toml import read_toml, toml_string
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import kind_of
from pyquant.schemes.fold_table import Table, ascending, checked_name, named_table, nearest_table


@dataclass(frozen=True)
class TableSet:
    """Tables of a model: a tensor has its own, else that of its kind, else the one for all.

    Attributes
    ----------
    name
        What reports and files call the tables.
    values
        (16,) int8, ascending: the table for all tensors that `by_name` does not name.
    by_name
        More tables, each (16,) int8 ascending, by the name of a tensor ("blk.3.attn_q.weight") or of a
        kind of tensor ("attn_q").
    """

    name: str
    values: NDArray[np.int8]
    by_name: Mapping[str, NDArray[np.int8]] = field(default_factory=dict)

    def of(self, tensor: str) -> NDArray[np.int8]:
        """Give the table of a tensor, by the tensor's name: (16,) int8."""
        own = self.by_name.get(tensor)
        return self.by_name.get(kind_of(tensor), self.values) if own is None else own

    def check(self, model: ModelFile) -> None:
        """Refuse names that are neither a tensor of the model nor a kind. Raises ConfigError."""
        known = sorted({name for t in model.tensors for name in (t.name, kind_of(t.name))})
        for name in self.by_name:
            if name not in known:
                raise ConfigError(
                    f"tables {self.name}: {name!r} is neither a tensor of {model.path} nor a kind of its "
                    f"tensors{did_you_mean(name, known)}"
                )

    def to_toml(self) -> str:
        """Write the text that `read_table_set` reads."""
        lines = [f"name = {toml_string(self.name)}", f"values = {self.values.tolist()}"]
        if self.by_name:
            lines += ["", "[tables]"]
            lines += [f"{toml_string(name)} = {values.tolist()}" for name, values in self.by_name.items()]
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Give the tables as JSON, schema pyquant.table_set/1."""
        return {
            "schema": "pyquant.table_set/1",
            "name": self.name,
            "values": self.values.tolist(),
            "tables": {name: values.tolist() for name, values in self.by_name.items()},
        }


def read_table_set(path: str | os.PathLike[str]) -> TableSet:
    """Read tables from TOML: `values`, and optionally `name` and [tables] by tensor or kind of tensor.

    Parameters
    ----------
    path
        The file, such as `pyquant tables learn` writes.

    Raises
    ------
    ConfigError
        The file is missing, or a key in it is wrong. The message names file and key.
    """
    path = Path(path)
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
        checked_name(path, content),
        ascending(path, "values", content["values"]).astype(np.int8),
        {key: ascending(path, f"tables.{key}", given).astype(np.int8) for key, given in tables.items()},
    )


def named_tables(name: str) -> tuple[Table, dict[str, Table]]:
    """Find a built-in table, or read the one or all in a file whose name ends in .toml.

    Returns: the table for all tensors that `by_name` does not name, and those for tensors or kinds of
    tensors. Where a file has tables for some tensors, every code goes to the nearest value.
    Raises ConfigError: there is no such table, or its file is wrong.
    """
    if not name.endswith(".toml") or "tables" not in read_toml(name, "table"):
        return named_table(name), {}
    tables = read_table_set(name)
    by_name = {key: nearest_table(key, values) for key, values in tables.by_name.items()}
    return nearest_table(tables.name, tables.values), by_name
