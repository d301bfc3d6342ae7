"""Small texts of some domains, to evaluate on. Nothing in pyquant calibrates on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "texts"


@dataclass(frozen=True)
class BundledText:
    """A text that comes with pyquant, of some 40 kB.

    sha256: of its file.
    """

    name: str
    sha256: str
    origin: str
    licence: str

    @property
    def path(self) -> Path:
        """Its file, UTF-8."""
        return FOLDER / f"{self.name}.txt"


BUNDLED_TEXTS = (
    BundledText(
        "code",
        "14d778af0c95dada87b9872fb541bb65a891ae46f1999b9dcfad5f40847dc4cd",
        "Python and C++ of pyquant, of November 2026",
        "MIT",
    ),
    BundledText(
        "prose",
        "9f5788e8b7037faca7de229985531f593ed2a84b7091d668d7c0833910cc7c2f",
        "Jargon File 4.4.7, 29 Dec 2003, from its second chapter on, as Debian's jargon-text has it",
        "public domain",
    ),
    BundledText(
        "chinese",
        "1fdebfedcf5dcc611d9db10afb2f13410108078c88c76f722a630ce16dc86345",
        "Tang poems of the 7th to 10th century, as Debian's fortunes-zh has them",
        "public domain",
    ),
)
