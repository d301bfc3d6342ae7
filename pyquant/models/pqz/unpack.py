"""Expand a pqz file to the GGUF that it was packed from."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pyquant.files.output_file import OutputFile
from pyquant.machine.memory import threads_with_room
from pyquant.models.conversion import Conversion, Converted
from pyquant.models.pqz.pqz_file import PqzFile
from pyquant.models.progress import Progress


@dataclass(frozen=True, kw_only=True)
class UnpackResult(Converted):
    """Result of unpacking.

    Attributes
    ----------
    sha256
        The hash of the GGUF.
    tools
        The versions of the tools that packed it, by name.
    """

    SCHEMA = "pyquant.unpack/1"

    sha256: str
    tools: dict[str, str]


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
        None: one for each core.
    progress
        Called while it goes on.

    Raises
    ------
    ModelFileError
        The pqz file is damaged. The message names the tensor.
    OutputError
        `output` cannot be written.
    """
    pqz = source if isinstance(source, PqzFile) else PqzFile(source)
    work = Conversion([pqz.path], output, force=force)
    with OutputFile(output, pqz.n_bytes, sources=work.sources, force=force) as file:
        pqz.expand(file.fileno(), threads_with_room(threads), progress)
        file.commit()
    return work.result(
        UnpackResult,
        source_bytes=pqz.path.stat().st_size,
        output_bytes=pqz.n_bytes,
        sha256=pqz.sha256,
        tools=pqz.index.tools,
    )
