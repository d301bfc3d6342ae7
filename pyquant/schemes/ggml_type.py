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


def file_type_of(mixture: str) -> LlamaFileType:
    """Give the file type that llama-quantize calls by a name. Raises ValueError, which lists the names."""
    wanted = ALIASES.get(mixture.upper(), mixture.upper())
    if wanted not in CHOICES:
        raise ValueError(f"is no type of GGML; known: {', '.join(sorted([*ALIASES, *CHOICES]))}")
    return CHOICES[wanted]


class GgmlType(Mode):
    """`ggml:Q4_K` and the like: the names that llama-quantize takes."""

    name: ClassVar = "ggml:TYPE"

    @field_validator("mode")
    @classmethod
    def _known(cls, mode: str) -> str:
        try:
            file_type_of(mode.partition(":")[2])
        except ValueError as error:
            raise ValueError(f"{mode!r} {error}") from None
        return mode

    @property
    def file_type(self) -> LlamaFileType:  # type: ignore[override]
        """The file type that llama-quantize would be asked for."""
        return file_type_of(self.mode.partition(":")[2])

    def scheme(self, q8_0_codes: CountCodes) -> None:
        return None
