"""Arrays, such as sums over chunks, that a run which was stopped leaves for the next one."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import Tell
from pyquant.files.kept import kept_until_done, not_used
from pyquant.files.npz import read_npz, replace_npz
from pyquant.files.output_file import output_errors
from pyquant.llama.chunks import Chunks
from pyquant.machine.environment import build_and_cpu

Sums = dict[str, NDArray[np.float32]]

MADE_OF, DONE = "made of", "chunks done"  # entries beside the sums


class KeptSums:
    """A file of sums so far, beside a Hessian file."""

    def __init__(
        self,
        output: Path,
        sha256: str,
        chunks: Chunks,
        seconds: float,
        wanted: Iterable[str] | None = None,
        *,
        called: str = "output-side",
        tell: Tell | None = None,
    ) -> None:
        """Name the file.

        output: the file that is being made. sha256, chunks: the model and the tokens that the sums are of.
        wanted: names of the matrices that they are of; None: all.
        seconds: how often `keep` writes.
        called: what the name ends with. tell: told of a file that is not used.
        """
        self._path = output.with_name(f".{output.name}.{called}.npz")
        said = (sha256, build_and_cpu(), str(chunks.tokens.shape), *sorted(wanted or ()))
        made_of = (*map(str.encode, said), chunks.tokens.tobytes())
        self._made_of = hashlib.sha256(b"\n".join(made_of)).hexdigest()
        self._seconds, self._saved, self._tell = seconds, time.monotonic(), tell

    def read(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, Sums]:
        """Return the chunks done and the sums over them; none where the file is of others, or damaged.

        shapes: of the sums that may be there, by their names.
        """
        if (known := self._read(shapes)) is None:
            if self._tell and self._path.exists():
                self._tell(not_used(self._path))
            return 0, {}
        return known

    def _read(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, Sums] | None:
        try:
            entries = read_npz(self._path)
        except (OSError, ValueError):
            return None
        made_of, done = entries.pop(MADE_OF, None), entries.pop(DONE, None)
        if str(made_of) != self._made_of or done is None or done.shape != () or done.dtype.kind not in "iu":
            return None
        for name, its in entries.items():
            if its.shape != shapes.get(name) or its.dtype != np.float32 or not np.isfinite(its).all():
                return None
        return int(done), entries

    def keep(self, n_done: int, sums: Sums, *, last: bool) -> None:
        """Write the sums where it is time for that, and the last ones. Raises OutputError."""
        if not last and time.monotonic() - self._saved < self._seconds:
            return
        with output_errors(self._path):
            replace_npz(self._path, {MADE_OF: np.array(self._made_of), DONE: np.array(n_done), **sums})
        self._saved = time.monotonic()

    def keeping(self) -> AbstractContextManager[None]:
        """Keep the file if the context is left by an error, and remove it else."""
        return kept_until_done(self._path, "what is done so far")
