"""From a packed model back to the GGUF, for good or for as long as llama.cpp reads it."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyquant.container.packed_file import PackedFile, Progress, is_packed, path_of, scratch_file
from pyquant.errors import ModelFileError, OutputError
from pyquant.model_file import ModelFile, OutputFile
from pyquant.tensor_pass import n_threads


@dataclass(frozen=True)
class UnpackReport:
    """What was unpacked. Sizes are whole files, in bytes. sha256: of the GGUF."""

    source: str
    output: str
    source_bytes: int
    output_bytes: int
    sha256: str
    tools: dict[str, str]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The report as `pyquant unpack --json` prints it."""
        return {"schema": "pyquant.unpack/1", **asdict(self)}


def unpack_model(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    force: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> UnpackReport:
    """Writes the GGUF that `source` was packed from, bit for bit.

    `output` appears complete or not at all, and is replaced only with `force`. Raises ModelFileError,
    naming the tensor that is damaged, and OutputError.
    """
    begin = time.perf_counter()
    packed = PackedFile(source)
    with OutputFile(output, packed.n_bytes, sources=[packed.path], force=force) as file:
        packed.expand(file.fileno(), n_threads(threads), progress)
        file.commit()
    return UnpackReport(
        source=str(source),
        output=str(output),
        source_bytes=packed.path.stat().st_size,
        output_bytes=packed.n_bytes,
        sha256=packed.sha256,
        tools=packed.index.tools,
        seconds=time.perf_counter() - begin,
    )


@contextmanager
def as_gguf(path: Path) -> Iterator[Path]:
    """A path by which llama.cpp can load the model: its own, or of a packed model that of the GGUF in a
    temporary file without a name, which is there until this is left and no mapping of it remains.

    Raises ModelFileError, and OutputError where the folder for temporary files lacks the room.
    """
    if not is_packed(path):
        yield path
        return
    if len(ModelFile(path).paths) > 1:
        raise ModelFileError(f"{path}: packed in shards, which llama.cpp finds by name: unpack each of them")
    packed = PackedFile(path)
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < packed.n_bytes:
        raise OutputError(
            f"{path}: expands to {packed.n_bytes:,} bytes, {free:,} are free in {tempfile.gettempdir()}; "
            f"let TMPDIR name a folder with more room, or unpack it with `pyquant unpack`"
        )
    with scratch_file() as file:
        packed.expand(file.fileno(), n_threads(None))
        yield path_of(file)
