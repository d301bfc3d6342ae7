"""From a packed model back to the GGUF."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from typing import Any

from pyquant.files.output_file import OutputFile
from pyquant.machine import n_threads
from pyquant.models.pqz.pqz_file import PqzFile, Progress


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
    packed = PqzFile(source)
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
