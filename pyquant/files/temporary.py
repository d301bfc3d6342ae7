"""Make folders for temporary files, and remove those that a killed process left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pyquant.errors import OutputError
from pyquant.files.output_file import output_errors

PREFIX = "pyquant-scratch-"
LOCK = ".lock"  # held for as long as the folder is used; a folder without it is nobody's to remove


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder that goes away. An OutputError within says how to name another place.

    A process that is killed leaves it; the next call of any process removes it.
    """
    try:
        with output_errors(tempfile.gettempdir()):
            _remove_abandoned(Path(tempfile.gettempdir()))
            holder = tempfile.TemporaryDirectory(prefix=PREFIX)
        with holder as name, _lock(Path(name)):
            yield Path(name)
    except OutputError as error:
        if not str(error).startswith(tempfile.gettempdir()):
            raise
        raise OutputError(f"{error}; TMPDIR=FOLDER names another place for temporary files") from None


def _lock(folder: Path) -> IO[str]:
    with output_errors(folder):
        lock = (folder / f"{LOCK}.new").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.replace(lock.name, folder / LOCK)  # so that nobody sees it before it is held
    return lock


def _remove_abandoned(place: Path) -> None:
    for folder in place.glob(f"{PREFIX}*"):
        # Whoever's it is, and whatever it is: what cannot be opened or held is left alone.
        with contextlib.suppress(OSError):
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not folder.is_symlink() and os.fstat(lock).st_uid == os.geteuid():
                    shutil.rmtree(folder)
            finally:
                os.close(lock)
