"""16 values at the scale that suits them best: no grid between the weights and the codes."""

from __future__ import annotations

from typing import ClassVar

from gguf import LlamaFileType
from pydantic import Field

from pyquant.schemes.base import Scheme
from pyquant.schemes.mode import CodeCounts, TableMode
from pyquant.tables.table_set import TableSet, read_table_set


def table(tables: TableSet) -> Scheme:
    """Every weight becomes the nearest of its tensor's values."""
    return Scheme(f"table({tables.name})", "q8_0", tables.values, fold=None, tables=tables)


class TableSearch(TableMode):
    """Tables of 16 values, one for the model or one for each kind of tensor or each tensor."""

    name: ClassVar = "table"
    file_type: ClassVar = LlamaFileType.MOSTLY_Q8_0

    table: str = Field(description="a TOML file, such as `pyquant tables learn` writes")

    def scheme(self, q8_0_codes: CodeCounts) -> Scheme:
        return table(read_table_set(self.table))

    def parameters(self, scheme: Scheme | None) -> dict[str, str | int]:
        assert scheme is not None
        assert scheme.tables is not None
        entries: dict[str, str | int] = {"table.name": scheme.name.removeprefix("table(").removesuffix(")")}
        if not scheme.tables.by_name:
            entries["table.values"] = " ".join(str(value) for value in scheme.values)
        return entries
