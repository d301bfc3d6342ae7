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


@contextmanager
def kept_until_done(path: Path, what: str) -> Iterator[None]:
    """Keep a file as `keeping` does if the context is left by an error, and remove it else."""
    with keeping(path, what):
        yield
    path.unlink(missing_ok=True)


@contextmanager
def checkpoint_of(output: Path, what: str) -> Iterator[Path]:
    """Name a file beside an output for what is finished of it, which is kept until all is.

    what: what it holds.
    """
    path = output.with_name(f".{output.name}.done")
    with kept_until_done(path, what):
        yield path


def not_used(path: Path) -> str:
    """Say that a run does not go on from what is there."""
    return f"{path}: is of another model, version, setting or CPU, or incomplete: not used, begun anew"


def kept() -> dict[Path, str]:
    """Return what is there to go on from, and what each holds."""
    return {path: what for path, what in _kept.items() if path.exists()}
