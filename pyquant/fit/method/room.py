"""Refuse a method that the machine has no room for, before its work; say with which options it would fit."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from pyquant.errors import ConfigError
from pyquant.files.output_file import output_errors
from pyquant.fit.method.forecast import Forecast, gb
from pyquant.fit.method.work_folder import stages_folder
from pyquant.machine.memory import available_memory

FEWEST = 8  # chunks that are suggested
BOUNDS = (256 << 20, 64 << 20)  # bytes for activations that are suggested

# What is expected with so many chunks, and so many bytes for activations; None: the default.
Forecasts = Callable[[int, int | None], Forecast]


def require_room(
    forecasts: Forecasts, n_chunks: int, memory: int | None, output: Path, hessian: Path | None
) -> None:
    """Refuse what does not fit.

    Parameters
    ----------
    forecasts
        Gives what is expected.
    n_chunks, memory
        What is asked for.
    output, hessian
        The file to write, and the user's file of statistics, which is made if it is not there.

    Raises
    ------
    ConfigError
        The message says what is lacking, and with which options it would fit.
    """
    if not (lacks := _lacking(forecasts(n_chunks, memory), output, hessian)):
        return
    for fewer, bound in _smaller(n_chunks, memory):
        if not _lacking(forecasts(fewer, bound), output, hessian):
            chunks = f"--calibration-chunks {fewer}" if fewer < n_chunks else ""
            bounded = f"--memory {bound >> 20}MiB" if bound is not None and bound != memory else ""
            raise ConfigError(f"{lacks}; it fits with {' '.join(filter(None, (chunks, bounded)))}")
    raise ConfigError(f"{lacks}; with {FEWEST} chunks it does not fit either")


def _smaller(n_chunks: int, memory: int | None) -> Iterator[tuple[int, int | None]]:
    bounds = [memory, *(bound for bound in BOUNDS if memory is None or bound < memory)]
    while n_chunks >= 1:
        yield from ((n_chunks, bound) for bound in bounds)
        if n_chunks <= FEWEST:
            return
        n_chunks = max(FEWEST, n_chunks // 2)


def _lacking(expected: Forecast, output: Path, hessian: Path | None) -> str | None:
    free_memory = available_memory()
    if free_memory is not None and expected.memory > free_memory:
        return f"memory: about {gb(expected.memory)} are needed, and {gb(free_memory)} are available"
    scratch = Path(tempfile.gettempdir())
    wanted = [(output.parent, expected.beside), (scratch, expected.temporary)]
    if hessian and not hessian.exists():
        wanted.append((hessian.parent, expected.making))
    for folder, _ in wanted:
        with output_errors(folder):
            disk = folder.stat().st_dev
            n_bytes = sum(size for other, size in wanted if other.stat().st_dev == disk)
            free = shutil.disk_usage(folder).free
            free += _left(output) if output.parent.stat().st_dev == disk else 0
        if n_bytes > free:
            shares = expected.temporary and scratch.stat().st_dev == disk
            other = f", {gb(expected.temporary)} of them in TMPDIR" if shares else ""
            return f"disk: about {gb(n_bytes)} are needed in {folder}{other}, and {gb(free)} are free"
    return None


def _left(output: Path) -> int:
    """Bytes that a run of before has taken already, for work that this one goes on with."""
    return sum(path.stat().st_blocks * 512 for path in stages_folder(output).glob("*"))
