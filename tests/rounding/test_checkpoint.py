"""The list of finished tensors that a killed run leaves: a line that cannot be true is not used."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyquant.calibration.calibrate import calibrate_model
from pyquant.files.kept import not_used
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.models import F32, MODELS, Model

MODE = make_mode({"mode": "ggml:Q4_0"})


class Stop(Exception):
    pass


def stopped(folder: Path) -> tuple[Path, Path, list[str]]:
    """A model, the list that a run of it left, and the lines of that."""
    source, checkpoint = MODELS[F32].write(folder / "model.gguf"), folder / "list"

    def stop(done: int, total: int, name: str) -> None:
        if 2 * done > total:
            raise Stop

    with pytest.raises(Stop):
        quantize_model(source, folder / "out.gguf", MODE, checkpoint=checkpoint, progress=stop, threads=1)
    return source, checkpoint, checkpoint.read_text().splitlines()


def taken_up(source: Path, checkpoint: Path) -> tuple[int, bytes]:
    """How many tensors are taken from the list, and the bytes of the file."""
    output = source.with_name("out.gguf")
    begun: list[int] = []

    def progress(done: int, total: int, name: str) -> None:
        if not begun:
            begun.append(len(checkpoint.read_text().splitlines()) - 1)

    result = quantize_model(source, output, MODE, checkpoint=checkpoint, progress=progress, threads=1)
    json.dumps(result.to_json(), allow_nan=False)
    return begun[0], output.read_bytes()


CHANGES: list[Callable[[dict[str, Any]], Any]] = [
    lambda line: line | {"squared_error": -1.0}, lambda line: line | {"squared_error": "x"},
    lambda line: line | {"squared_weight": float("inf")}, lambda line: line | {"zeros": 10**400},
    lambda line: line | {"zeros": None}, lambda line: line | {"name": ["x"]},
    lambda line: line | {"name": "x"},
    lambda line: line | {"type": "NOTHING"}, lambda line: line | {"n_weights": 0},
    lambda line: line | {"more": 1},
    lambda line: [line], lambda line: {},
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_a_line_that_cannot_be_true_is_not_used(number: int, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    quantize_model(MODELS[F32].write(whole / "model.gguf"), whole / "out.gguf", MODE, threads=1)
    source, checkpoint, lines = stopped(tmp_path)
    assert len(lines) > 4
    damaged = json.dumps(CHANGES[number](json.loads(lines[3])))
    checkpoint.write_text("\n".join([*lines[:3], damaged, *lines[4:]]) + "\n")
    n_taken, written = taken_up(source, checkpoint)
    assert n_taken == 2
    assert written == (whole / "out.gguf").read_bytes()


def test_tensors_of_another_model_are_not_taken_up(tmp_path: Path) -> None:
    source, checkpoint, lines = stopped(tmp_path)
    assert len(lines) > 3
    Model(seed=9).write(source)
    written, told = [tmp_path / "out.gguf", tmp_path / "whole.gguf"], []
    quantize_model(source, written[0], MODE, checkpoint=checkpoint, tell=told.append)
    assert told == [not_used(checkpoint)]
    quantize_model(source, written[1], MODE)
    assert written[0].read_bytes() == written[1].read_bytes()


def test_tensors_by_other_statistics_are_not_taken_up(text: Path, tmp_path: Path) -> None:
    """Headers name the file of statistics, which may be written anew."""
    source, stats, made = MODELS[F32].write(tmp_path / "model.gguf"), tmp_path / "stats", []
    mode = make_mode({"mode": "ggml:Q4_0", "hessian": stats})

    def stop(done: int, total: int, name: str) -> None:
        if 2 * done > total:
            raise Stop

    calibrate_model(source, [text], stats, n_ctx=64, n_chunks=16)
    with pytest.raises(Stop):
        quantize_model(source, tmp_path / "out.gguf", mode, checkpoint=tmp_path / "list", progress=stop)
    calibrate_model(source, [text], stats, n_ctx=64, n_chunks=32, force=True)
    for name, options in (("out.gguf", {"checkpoint": tmp_path / "list"}), ("fresh.gguf", {})):
        quantize_model(source, tmp_path / name, mode, **options)
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1]
