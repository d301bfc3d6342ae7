"""What `pyquant generate` prints, with a draft and without."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyquant.cli.output import remark

SCHEMA = "pyquant.generate/1"

if TYPE_CHECKING:
    from pyquant.generation.sampling.result import Sample


def say_unfinished(sample: Sample) -> None:
    """Tells where a completion ends before its grammar does."""
    from pyquant.generation.sampling.result import CONTEXT, DEAD_END, LENGTH

    why = {
        LENGTH: "has as many tokens as --max-tokens allows, and may be cut off",
        CONTEXT: "fills the context, and may be cut off; --ctx makes room",
        DEAD_END: "does not keep to the grammar: none of the tokens that may be drawn can follow in it",
    }
    if sample.finish in why:
        remark(f"{sample.name}: completion {sample.number} {why[sample.finish]}")


def print_live() -> Callable[[Sample, bytes], None]:
    """Returns what prints a completion's bytes as they come, characters whole."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def write(sample: Sample, piece: bytes) -> None:
        sys.stdout.write(decoder.decode(piece, final=bool(sample.finish)))
        sys.stdout.flush()

    return write
