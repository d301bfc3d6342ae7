"""Any type that GGML quantizes to, as a neighbor to compare with."""

from __future__ import annotations

from typing import ClassVar

from gguf import LlamaFileType
from pydantic import field_validator

from pyquant.schemes.mode import CountCodes, Mode

# Names that llama-quantize takes for a mixture.
ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M", "F32": "ALL_F32"}
CHOICES = {
    file_type.name.removeprefix("MOSTLY_"): file_type
    for file_type in LlamaFileType
    if file_type.name.startswith("MOSTLY_") or file_type is LlamaFileType.ALL_F32
}


class GgmlType(Mode):
    """`ggml:Q4_K` and the like: the names that llama-quantize takes."""

    name: ClassVar = "ggml:TYPE"

    @field_validator("mode")
    @classmethod
    def _known(cls, mode: str) -> str:
        wanted = mode.partition(":")[2].upper()
        if ALIASES.get(wanted, wanted) not in CHOICES:
            known = ", ".join(sorted([*ALIASES, *CHOICES]))
            raise ValueError(f"{mode!r} is no type of GGML; known: {known}")
        return mode

    @property
    def file_type(self) -> LlamaFileType:  # type: ignore[override]
        """The file type that llama-quantize would be asked for."""
        wanted = self.mode.partition(":")[2].upper()
        return CHOICES[ALIASES.get(wanted, wanted)]

    def scheme(self, q8_0_codes: CountCodes) -> None:
        return None
