"""Q8_0 folded to 4 bits: every 8-bit code becomes one of 16, and decodes through a table."""

from __future__ import annotations

from typing import ClassVar

from gguf import LlamaFileType
from pydantic import Field

from pyquant.schemes.base import Scheme
from pyquant.schemes.fold_table import Table, balanced, named_table
from pyquant.schemes.mode import CountCodes, TableMode


def q8_table(table: Table) -> Scheme:
    """Q8_0's grid through a table."""
    return Scheme(f"q8_table({table.name})", "q8_0", values=table.values, fold=table.fold)


class Q8Table(TableMode):
    """Q8_0 through a table of 16 values, stored in Q8_0 blocks that any llama.cpp runs."""

    name: ClassVar[str] = "q8_table"
    file_type: ClassVar[LlamaFileType] = LlamaFileType.MOSTLY_Q8_0

    table: str = Field(description="basic, balanced, or a TOML file")

    def scheme(self, q8_0_codes: CountCodes) -> Scheme:
        if self.table == "balanced":
            return q8_table(balanced(q8_0_codes()))
        return q8_table(named_table(self.table))

    def parameters(self, scheme: Scheme | None) -> dict[str, str | int]:
        assert scheme is not None
        return {
            "table.name": scheme.name.removeprefix("q8_table(").removesuffix(")"),
            "table.values": " ".join(str(value) for value in scheme.values),
        }
