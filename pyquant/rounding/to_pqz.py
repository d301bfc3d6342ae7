"""Quantize a model straight to a pqz file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyquant.errors import Tell
from pyquant.files.output_file import check_output
from pyquant.models.model_file import AnyModel, open_model
from pyquant.models.pqz.pack import PackResult, pack_model
from pyquant.models.progress import Progress
from pyquant.rounding.quantize_model import quantize_model
from pyquant.rounding.result import QuantizeResult
from pyquant.schemes import Mode


@dataclass(frozen=True)
class PqzResult:
    """Results of a quantization (`quantized`), and of packing its output (`pqz`)."""

    quantized: QuantizeResult
    pqz: PackResult

    def to_json(self) -> dict[str, Any]:
        """Give the result as `pyquant quantize --json` prints it, schema pyquant.quantize/1.

        Output, sizes, time and `streams` are those of the pqz file.
        """
        pqz = self.pqz.to_json()
        result = self.quantized.to_json()
        result["seconds"] += pqz["seconds"]
        result["files"] = [pqz["output"]]
        return result | {key: pqz[key] for key in ("output", "output_bytes", "bits_per_weight", "streams")}


def quantize_to_pqz(
    source: AnyModel,
    output: str | os.PathLike[str],
    mode: Mode,
    *,
    threads: int | None = None,
    force: bool = False,
    memory: int | None = None,
    progress: Progress | None = None,
    tell: Tell | None = None,
) -> PqzResult:
    """Quantize a model and pack the result. The GGUF between them stands beside `output` and goes away.

    Parameters
    ----------
    source, mode, threads, memory, progress, tell
        As for `quantize_model`.
    output
        The pqz file to write. It appears complete or not at all.
    force
        Replace an existing `output`.

    Raises
    ------
    ModelFileError, ConfigError, OutputError
        As `quantize_model` and `pack_model` do.
    """
    output = Path(output)
    model = open_model(source)
    check_output(output, sources=model.paths, force=force)
    between = output.with_name(f".{output.name}.unpacked")
    try:
        quantized = quantize_model(
            model, between, mode, threads=threads, force=True, memory=memory, progress=progress, tell=tell
        )
        pqz = pack_model(between, output, force=force, threads=threads, progress=progress)
    finally:
        between.unlink(missing_ok=True)
    return PqzResult(quantized, pqz)
