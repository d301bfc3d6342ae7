"""Modes that are tried: a model quantized by one, and how far it is from the model then."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyquant.compare import compare_models
from pyquant.errors import OutputError
from pyquant.quantize import quantize_model
from pyquant.schemes import Mode


@dataclass(frozen=True)
class Evaluation:
    """What a divergence is measured on. text: a file."""

    text: Path
    n_ctx: int
    n_chunks: int | None


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that goes away; an OutputError in it says how to have another one."""
    try:
        with tempfile.TemporaryDirectory(prefix="pyquant-") as folder:
            yield Path(folder)
    except OutputError as error:
        raise OutputError(f"{error}; TMPDIR=FOLDER names another place for temporary files") from None


def divergence_of(mode: Mode, model: Path, path: Path, evaluation: Evaluation) -> float:
    """The mean divergence per token, in nats, from `model` of what `mode` makes of it, at `path`.

    Raises what `quantize_model` and `compare_models` raise.
    """
    quantize_model(model, path, mode, force=True)
    apart = compare_models(
        model, [path], evaluation.text, n_ctx=evaluation.n_ctx, n_chunks=evaluation.n_chunks,
        threads=mode.threads,
    )  # fmt: skip
    return apart.to_json()["candidates"][0]["kld"]["mean"]
