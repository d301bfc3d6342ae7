"""Expand a pqz file to the GGUF that it was packed from."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from typing import Any

from pyquant.files.output_file import OutputFile
from pyquant.machine.memory import threads_with_room
from pyquant.models.pqz.pqz_file import PqzFile
from pyquant.models.progress import Progress


@dataclass(frozen=True)
class UnpackResult:
    """Result of unpacking.

    Attributes
    ----------
    source, output
        Paths.
    source_bytes, output_bytes
        Sizes of whole files.
    sha256
        The hash of the GGUF.
    tools
        The versions of the tools that packed it, by name.
    seconds
        What it took.
    """

    source: str
    output: str
    source_bytes: int
    output_bytes: int
    sha256: str
    tools: dict[str, str]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Give the result as `pyquant unpack --json` prints it, schema pyquant.unpack/1."""
        return {"schema": "pyquant.unpack/1", **asdict(self)}


def unpack_model(
    source: PqzFile | str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    force: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> UnpackResult:
    """Write the GGUF that a pqz file was packed from, bit for bit.

    Parameters
    ----------
    source
        A path, or an opened pqz file.
    output
        The GGUF to write. It appears complete or not at all.
    force
        Replace an existing `output`.
    threads
        None: one for each processor.
    progress
        Called while it goes on.

    Raises
    ------
    ModelFileError
        The pqz file is damaged. The message names the tensor.
    OutputError
        `output` cannot be written.
    """
    begin = time.perf_counter()
    pqz = source if isinstance(source, PqzFile) else PqzFile(source)
    with OutputFile(output, pqz.n_bytes, sources=[pqz.path], force=force) as file:
        pqz.expand(file.fileno(), threads_with_room(threads), progress)
        file.commit()
    return UnpackResult(
        source=str(pqz.path),
        output=str(output),
        source_bytes=pqz.path.stat().st_size,
        output_bytes=pqz.n_bytes,
        sha256=pqz.sha256,
        tools=pqz.index.tools,
        seconds=time.perf_counter() - begin,
    )
