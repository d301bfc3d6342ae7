"""The hash of a source, made while it is worked on."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path


def files_sha256(paths: list[Path], cancelled: Callable[[], bool] = lambda: False) -> str:
    """Of files one after the other; of one file, as sha256sum prints it."""
    digest = hashlib.sha256()
    buffer = bytearray(1 << 20)
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while (n := file.readinto(buffer)) and not cancelled():
                digest.update(memoryview(buffer)[:n])
    return digest.hexdigest()


class SourceHash:
    """The SHA-256 of files, made beside other work: it costs a core, not a wait. A context manager."""

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
        """In hex, once all has been read."""
        self._thread.join()
        return self._digest
