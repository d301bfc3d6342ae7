"""Make folders for temporary files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyquant.errors import OutputError


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder that goes away. An OutputError within says how to name another place."""
    try:
        with tempfile.TemporaryDirectory(prefix="pyquant-") as folder:
            yield Path(folder)
    except OutputError as error:
        raise OutputError(f"{error}; TMPDIR=FOLDER names another place for temporary files") from None
