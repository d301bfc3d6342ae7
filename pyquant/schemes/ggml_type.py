"""Any type that GGML quantizes to, as a neighbor to compare with."""

from __future__ import annotations

from typing import ClassVar

from gguf import LlamaFileType
from pydantic import field_validator

from pyquant import _core
from pyquant.models.file_type import FILE_TYPES
from pyquant.schemes.mode import CountCodes, Mode

COPY = "COPY"
# Names that llama-quantize takes for a mixture.
ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}
# What llama-quantize makes, and what llama.cpp reads and does not make.
CHOICES = {name: number for name, number in FILE_TYPES.items() if _core.is_made(number)}
READ_ALONE = sorted(FILE_TYPES.keys() - CHOICES)


def file_type_of(mixture: str) -> int:
    """Give the file type that llama-quantize calls by a name. Raises ValueError, which lists the names."""
    wanted = ALIASES.get(mixture.upper(), mixture.upper())
    if wanted in READ_ALONE:
        raise ValueError("is a type that llama.cpp runs, and that it does not quantize to")
    if wanted not in CHOICES:
        raise ValueError(f"is no type of GGML; known: {', '.join(sorted([*ALIASES, *CHOICES, COPY]))}")
    return CHOICES[wanted]


class GgmlType(Mode):
    """`ggml:Q4_K` and the like: the names that llama-quantize takes."""

    name: ClassVar[str] = "ggml:TYPE"

    @field_validator("mode")
    @classmethod
    def _known(cls, mode: str) -> str:
        mixture = mode.partition(":")[2]
        try:
            if mixture.upper() != COPY:
                file_type_of(mixture)
        except ValueError as error:
            raise ValueError(f"{mode!r} {error}") from None
        return mode

    @property
    def copies(self) -> bool:  # type: ignore[override]
        """Say whether every tensor keeps its type."""
        return self._mixture.upper() == COPY

    @property
    def file_type(self) -> int:  # type: ignore[override]
        """The file type that llama-quantize would be asked for."""
        return LlamaFileType.ALL_F32 if self.copies else file_type_of(self._mixture)

    @property
    def _mixture(self) -> str:
        return self.mode.partition(":")[2]

    def scheme(self, q8_0_codes: CountCodes) -> None:
        return None
