"""Multi-zero: recentred Q4_0 whose codes of magnitude up to a radius become 0."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
from gguf import LlamaFileType
from pydantic import Field

from pyquant import limits
from pyquant.schemes.base import Scheme
from pyquant.schemes.mode import CountCodes, TableMode
from pyquant.schemes.q4_0_recentred import q4_0_recentred


def q4_0_multizero(radius: int) -> Scheme:
    """Recentred Q4_0 with |code| <= radius folded to 0."""
    scheme = q4_0_recentred()
    kept = np.abs(scheme.values.astype(int)) > radius
    fold = np.where(kept, np.arange(16), 0).astype(np.uint8)
    return replace(scheme, name=f"q4_0_multizero({radius})", fold=fold[scheme.folding])


class Q4_0MultiZero(TableMode):
    """Q4_0 with more zeros; still a Q4_0 file for any llama.cpp."""

    name: ClassVar[str] = "q4_0_multizero"
    file_type: ClassVar[LlamaFileType] = LlamaFileType.MOSTLY_Q4_0

    radius: Annotated[int, limits.RADIUS.interval] = Field(
        description="codes of magnitude up to this become 0"
    )

    def scheme(self, q8_0_codes: CountCodes) -> Scheme:
        return q4_0_multizero(self.radius)

    def parameters(self, scheme: Scheme | None) -> dict[str, str | int]:
        return {"radius": self.radius}
