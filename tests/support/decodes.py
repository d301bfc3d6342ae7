"""Count how often models are run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from pyquant.llama.context import Context


@contextmanager
def counted_decodes() -> Iterator[Counter[str]]:
    """Count the batches that each model, by its file's name, is given within."""
    counts: Counter[str] = Counter()
    decode = Context.decode

    def counted(context: Context, *arguments: object) -> object:
        counts[context.model.path.name] += 1
        return decode(context, *arguments)

    Context.decode = counted
    try:
        yield counts
    finally:
        Context.decode = decode
