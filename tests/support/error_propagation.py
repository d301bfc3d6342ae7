"""Rounding in the order of the model by a function of a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyquant import _core
from pyquant.calibration.calibration import Calibration
from pyquant.models.model_file import ModelFile
from pyquant.rounding.error_propagation import write_propagated
from pyquant.rounding.tensor_writer import ToWrite


def error_propagation(
    path: Path, stats: Path, write: Callable, names: str = "blk", tell: Callable[[str], None] | None = None
) -> list[str]:
    """The matrices that a run came to. write: (tensor, weights or None) -> the values that it then has."""
    model, calibration, met = ModelFile(path), Calibration.read(stats), []

    def note(wanted: list[ToWrite]) -> None:
        for each in wanted:
            met.append(each.tensor.name)
            values = write(each.tensor, each.weights)
            each.copy[:] = _core.ggml_encoder(int(each.tensor.type)).encode(values)

    wanted = [t for t in model.tensors if t.name in calibration.matrices and names in t.name]
    write_propagated(model, calibration, wanted, 32, note, folder=stats.parent, threads=2, tell=tell)
    return met
