"""Quantizing straight to a packed file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyquant.files.output_file import check_output
from pyquant.models.model_file import AnyModel, open_model
from pyquant.models.pqz.pack import PackResult, pack_model
from pyquant.models.tensor_reader import Progress
from pyquant.quantize.quantize_model import QuantizeResult, quantize_model
from pyquant.schemes import Mode

SUFFIX = ".pqz"


@dataclass(frozen=True)
class PqzResult:
    """What a quantization and the packing of its result did."""

    quantized: QuantizeResult
    pqz: PackResult

    def to_json(self) -> dict[str, Any]:
        """The quantization's report, with sizes and time of the packed file, and its `streams`."""
        packed = self.pqz.to_json()
        result = self.quantized.to_json()
        result["seconds"] += packed["seconds"]
        return result | {key: packed[key] for key in ("output", "output_bytes", "bits_per_weight", "streams")}


def quantize_to_pqz(
    source: AnyModel,
    output: str | os.PathLike[str],
    mode: Mode,
    *,
    threads: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> PqzResult:
    """As `quantize_model`, then `pack_model`; the GGUF between them stands beside `output` and goes away.

    Raises what they raise.
    """
    output = Path(output)
    model = open_model(source)
    check_output(output, sources=model.paths, force=force)
    between = output.with_name(f".{output.name}.unpacked")
    try:
        quantized = quantize_model(model, between, mode, threads=threads, force=True, progress=progress)
        packed = pack_model(between, output, force=force, threads=threads, progress=progress)
    finally:
        between.unlink(missing_ok=True)
    return PqzResult(quantized, packed)
