"""A packed model as a file that llama.cpp can load, for as long as it does."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyquant.errors import ModelFileError, OutputError
from pyquant.machine import n_threads
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.pqz_file import PqzFile, is_pqz, path_of, scratch_file


@contextmanager
def as_gguf(path: Path) -> Iterator[Path]:
    """A path by which llama.cpp can load the model: its own, or of a packed model that of the GGUF in a
    temporary file without a name, which is there until this is left and no mapping of it remains.

    Raises ModelFileError, and OutputError where the folder for temporary files lacks the room.
    """
    if not is_pqz(path):
        yield path
        return
    if len(ModelFile(path).paths) > 1:
        raise ModelFileError(f"{path}: packed in shards, which llama.cpp finds by name: unpack each of them")
    packed = PqzFile(path)
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < packed.n_bytes:
        raise OutputError(
            f"{path}: expands to {packed.n_bytes:,} bytes, {free:,} are free in {tempfile.gettempdir()}; "
            f"let TMPDIR name a folder with more room, or unpack it with `pyquant unpack`"
        )
    with scratch_file() as file:
        packed.expand(file.fileno(), n_threads(None))
        yield path_of(file)
