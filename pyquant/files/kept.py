"""Name what a command that is stopped leaves on purpose, for the next run to go on from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_kept: dict[Path, str] = {}


@contextmanager
def keeping(path: Path, what: str) -> Iterator[None]:
    """Note, until the context is left in peace, that `path` stays if this process is stopped.

    path: a file or folder, which need not exist yet.
    what: what it holds.
    """
    _kept[path] = what
    yield
    del _kept[path]


def kept() -> dict[Path, str]:
    """Return what is there to go on from, and what each holds."""
    return {path: what for path, what in _kept.items() if path.exists()}
