"""Any type that GGML quantizes to, as a neighbor to compare with."""

from __future__ import annotations

from typing import ClassVar

from gguf import LlamaFileType
from pydantic import field_validator

from pyquant import _core
from pyquant.models.file_type import FILE_TYPES
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_type import TensorType as Type
from pyquant.models.type_policy import quantizable
from pyquant.schemes.mode import CountCodes, Mode

COPY = "COPY"
# Names that llama-quantize takes for a mixture.
ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}
CHOICES = {name: number for name, number in FILE_TYPES.items() if _core.is_made(number)}
# Types of FP4, and what a file of one says of itself. llama-quantize has MXFP4_MOE alone, in which experts
# are MXFP4 and all else is Q8_0. Here all matrices of layers get the type, as by
# `llama-quantize --tensor-type 'blk\.=TYPE' IN OUT MXFP4_MOE`.
FP4 = {Type.MXFP4.name: CHOICES["MXFP4_MOE"], Type.NVFP4.name: FILE_TYPES["NVFP4"]}
KNOWN = sorted([*ALIASES, *CHOICES, *FP4, COPY])


def file_type_of(mixture: str) -> int:
    """Give the file type that llama-quantize calls by a name. Raises ValueError, which lists the names."""
    wanted = ALIASES.get(mixture.upper(), mixture.upper())
    if wanted not in CHOICES:
        raise ValueError(f"is no type of GGML; known: {', '.join(sorted([*ALIASES, *CHOICES, COPY]))}")
    return CHOICES[wanted]


class GgmlType(Mode):
    """`ggml:Q4_K` and the like: the names that llama-quantize takes, and FP4's."""

    name: ClassVar[str] = "ggml:TYPE"

    @field_validator("mode")
    @classmethod
    def _known(cls, mode: str) -> str:
        type_ = mode.partition(":")[2].upper()
        if type_ not in KNOWN:
            raise ValueError(f"{mode!r} is no type of GGML; known: {', '.join(KNOWN)}")
        return f"ggml:{type_}"  # results are named by it: it is written in one way

    @property
    def copies(self) -> bool:  # type: ignore[override]
        """Say whether every tensor keeps its type."""
        return self._mixture == COPY

    @property
    def file_type(self) -> int:  # type: ignore[override]
        """The file type that llama-quantize would be asked for."""
        if self._mixture in FP4:
            return CHOICES["MXFP4_MOE"]
        return LlamaFileType.ALL_F32 if self.copies else file_type_of(self._mixture)

    @property
    def stated_type(self) -> int:
        return FP4.get(self._mixture, self.file_type)

    def types(self, model: ModelFile) -> dict[str, Type]:
        if self._mixture not in FP4:
            return {}
        type_, names = Type[self._mixture], quantizable(model)
        n_columns = _core.columns_together(int(type_))[2]
        return {
            tensor.name: type_
            for tensor in model.tensors
            if tensor.name in names
            and (self.pure or "blk." in tensor.name)
            and tensor.n_per_row % n_columns == 0
        }

    @property
    def _mixture(self) -> str:
        return self.mode.partition(":")[2]

    def scheme(self, q8_0_codes: CountCodes) -> None:
        return None
