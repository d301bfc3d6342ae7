"""What `pyquant generate` prints, with a draft and without."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

SCHEMA = "pyquant.generate/1"

if TYPE_CHECKING:
    from pyquant.generation.sampling.result import Sample


def print_live() -> Callable[[Sample, bytes], None]:
    """Returns what prints a completion's bytes as they come, characters whole."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def write(sample: Sample, piece: bytes) -> None:
        sys.stdout.write(decoder.decode(piece, final=bool(sample.finish)))
        sys.stdout.flush()

    return write
