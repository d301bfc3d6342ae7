"""Mode table: 16 values at the scale that suits them best, without a grid."""

from __future__ import annotations

from typing import ClassVar

from gguf import LlamaFileType
from pydantic import Field

from pyquant.schemes.base import Scheme
from pyquant.schemes.mode import CountCodes, TableMode
from pyquant.schemes.table_set import TableSet, read_table_set


def table(tables: TableSet) -> Scheme:
    """Make the scheme in which every weight becomes the nearest of its tensor's values."""
    return Scheme(f"table({tables.name})", "q8_0", tables.values, fold=None, tables=tables)


class TableSearch(TableMode):
    """Tables of 16 values, one for the model or one for each kind of tensor or each tensor."""

    name: ClassVar[str] = "table"
    file_type: ClassVar[LlamaFileType] = LlamaFileType.MOSTLY_Q8_0

    table: str = Field(description="a TOML file, such as `pyquant tables learn` writes")

    def scheme(self, q8_0_codes: CountCodes) -> Scheme:
        return table(read_table_set(self.table))

    def parameters(self, scheme: Scheme | None) -> dict[str, str | int]:
        assert scheme is not None
        entries: dict[str, str | int] = {"table.name": scheme.name.removeprefix("table(").removesuffix(")")}
        if not (scheme.tables and scheme.tables.by_name):
            entries["table.values"] = " ".join(str(value) for value in scheme.values)
        return entries
