"""A file with a mode that pyquant does not come with."""

from __future__ import annotations

SCHEME = """
from typing import ClassVar

from gguf import LlamaFileType
from pydantic import Field

from pyquant.schemes import Mode
from pyquant.schemes.q4_0_multizero import q4_0_multizero


class Mine(Mode):
    name: ClassVar = "NAME"
    file_type: ClassVar = LlamaFileType.MOSTLY_Q4_0

    bound: int = Field(ge=0, le=7, description="codes up to this become 0")

    def scheme(self, q8_0_codes):
        return q4_0_multizero(self.bound)
"""


def scheme(name: str) -> str:
    """Give the file's text, with a name for the mode."""
    return SCHEME.replace("NAME", name)
