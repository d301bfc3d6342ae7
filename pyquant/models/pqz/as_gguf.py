"""Give llama.cpp a pqz file as a GGUF that it can load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyquant.errors import ModelFileError
from pyquant.machine.memory import threads_with_room
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.pqz_file import check_room, path_of, scratch_file


@contextmanager
def as_gguf(model: ModelFile) -> Iterator[Path]:
    """Give a path from which llama.cpp can load the model.

    Of a GGUF this is its own path. A pqz file is expanded into a temporary file without a name, which is
    there until this context is left and no mapping of the file remains.

    Raises ModelFileError: the pqz file is damaged, or one of several shards. OutputError: the folder for
    temporary files lacks the room.
    """
    if not model.pqz_files:
        yield model.path
        return
    if len(model.paths) > 1:
        raise ModelFileError(
            f"{model.path}: packed in shards, which llama.cpp finds by name: unpack each of them"
        )
    (pqz,) = model.pqz_files
    check_room(pqz.n_bytes, str(model.path))
    with scratch_file() as file:
        pqz.expand(file.fileno(), threads_with_room(None))
        yield path_of(file)
