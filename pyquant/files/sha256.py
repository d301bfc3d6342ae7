"""Hash files, also while other work goes on."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
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


def _settle(digest: Future[str], hashing: Callable[[], str]) -> None:
    """Hash, and hand over the digest or the error: a thread has nobody to raise to."""
    try:
        digest.set_result(hashing())
    except BaseException as error:
        digest.set_exception(error)


class SourceHash:
    """Hashes files in a thread beside other work. A context manager."""

    def __init__(self, paths: list[Path]) -> None:
        self._stop = False
        self._digest: Future[str] = Future()
        hashing = partial(files_sha256, paths, lambda: self._stop)
        self._thread = threading.Thread(target=_settle, args=(self._digest, hashing), daemon=True)

    def __enter__(self) -> SourceHash:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop = True
        self._thread.join()

    def result(self) -> str:
        """Wait until all has been read, and give the hash in hex. Raises OSError, MemoryError."""
        return self._digest.result()


class OutputHash:
    """Hashes a file in a thread while it is written, from its beginning to where it is complete.

    A context manager.
    """

    def __init__(self, file: int) -> None:
        """Prepare to hash. file: the number of an open file, from which it is read again."""
        self._file = file
        self._changed = threading.Condition()
        self._complete, self._last, self._given_up = 0, False, False
        self._digest: Future[str] = Future()
        # Ctrl-C may come when it has started and nobody is within the context yet: nothing waits for it then.
        self._thread = threading.Thread(target=_settle, args=(self._digest, self._read), daemon=True)

    def _read(self) -> str:
        digest, buffer, at, last = hashlib.sha256(), memoryview(bytearray(1 << 20)), 0, False
        while not last:
            complete, last = self._wait(at)
            while at < complete and not self._given_up:
                n = os.preadv(self._file, [buffer[: complete - at]], at)
                if n == 0:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                digest.update(buffer[:n])
                at += n
        return digest.hexdigest()

    def _wait(self, at: int) -> tuple[int, bool]:
        with self._changed:
            self._changed.wait_for(lambda: self._last or self._complete > at)
            return self._complete, self._last

    def reach(self, complete: int, *, last: bool = False) -> None:
        """Say up to which byte the file is complete, and whether these are all of its bytes."""
        with self._changed:
            self._complete, self._last = max(complete, self._complete), last
            self._changed.notify()

    def result(self, size: int) -> str:
        """Wait until all `size` bytes, which are complete now, have been read, and give the hash in hex."""
        self.reach(size, last=True)
        return self._digest.result()

    def __enter__(self) -> OutputHash:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._given_up = True
        self.reach(0, last=True)
        self._thread.join()
