"""Hash files, also while other work goes on."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path


def files_sha256(paths: list[Path], cancelled: Callable[[], bool] = lambda: False) -> str:
    """Hash files, one after the other: of one file, what sha256sum prints.

    cancelled: asked now and then; once it says True, the rest is left out.
    """
    digest = hashlib.sha256()
    buffer = bytearray(1 << 20)
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while (n := file.readinto(buffer)) and not cancelled():
                digest.update(memoryview(buffer)[:n])
    return digest.hexdigest()


class SourceHash:
    """Hashes files in a thread beside other work. A context manager."""

    def __init__(self, paths: list[Path]) -> None:
        self._stop = False
        self._digest = ""
        self._thread = threading.Thread(target=self._run, args=(paths,))

    def _run(self, paths: list[Path]) -> None:
        self._digest = files_sha256(paths, lambda: self._stop)

    def __enter__(self) -> SourceHash:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop = True
        self._thread.join()

    def result(self) -> str:
        """Wait until all has been read, and give the hash in hex."""
        self._thread.join()
        return self._digest
