"""Check what rounding in order refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.calibration import Calibration
from pyquant.errors import ConfigError, ModelFileError, NotEnoughMemory
from pyquant.models.model_file import ModelFile
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.models import F32


def refused(source: Path, output: Path, error: type[Exception], message: str, **settings: object) -> None:
    with pytest.raises(error, match=message):
        quantize_model(source, output, make_mode({"mode": "ggml:IQ4_NL", **settings}))
    assert not output.exists()
    assert not list(output.parent.glob(".*partial"))


def test_what_is_refused(generated, stats_of, text: Path, tmp_path: Path) -> None:
    source, stats, out = generated(F32), stats_of(F32), tmp_path / "out.gguf"
    refused(
        source,
        out,
        ConfigError,
        "error_propagation: is of Hessian statistics, and none are given",
        error_propagation=32,
    )
    imatrix = tmp_path / "imatrix.gguf"
    calibrate_model(source, [text], tmp_path / "few", n_ctx=64, n_chunks=2, imatrix=imatrix)
    refused(
        source,
        out,
        ConfigError,
        "error_propagation: needs --hessian",
        hessian=imatrix,
        error_propagation=32,
    )
    few = r"2 chunks of 64 tokens of .* are too few: blk.*weight, with rows of 96, needs 768 tokens"
    refused(source, out, ConfigError, few, hessian=stats, error_propagation=2)
    with pytest.raises(ConfigError, match="error_propagation"):
        make_mode({"mode": "q4_0", "hessian": stats, "error_propagation": 257})


def test_matrices_with_too_few_tokens_are_rounded_by_gptq_alone(generated, stats_of, tmp_path: Path) -> None:
    source, told = generated(F32), []
    settings = {"mode": "ggml:IQ4_NL", "hessian": stats_of(F32)}
    for name, error_propagation in (
        ("gptq", None),
        ("all", 32),
        ("some", 10),
    ):  # of 64 tokens; rows of 64 and 96
        mode = make_mode({**settings, "error_propagation": error_propagation, "dampening": 0.3})
        quantize_model(source, tmp_path / name, mode, tell=told.append)
    (line,) = (line for line in told if "too few" in line)
    assert "10 chunks of 64 tokens" in line
    assert "with rows of up to 96: these are rounded by GPTQ alone; 12 chunks would do for all" in line
    files = {name: ModelFile(tmp_path / name) for name in ("gptq", "all", "some")}
    same = {
        tensor.name
        for tensor, other in zip(files["gptq"].tensors, files["some"].tensors)
        if tensor.data() == other.data()
    }
    assert "blk.1.ffn_down.weight" in same
    assert "blk.1.ffn_up.weight" not in same


def test_more_memory_than_there_is(generated, stats_of, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("pyquant.rounding.staged_memory.available_memory", lambda: 10_000)
    message = r"about 0\.\d+ GB of memory: .*; 1e-05 GB of memory are free: give fewer chunks, or --memory"
    settings = {"hessian": stats_of(F32), "error_propagation": 32}
    refused(generated(F32), tmp_path / "out.gguf", NotEnoughMemory, message, **settings)


def test_statistics_without_tokens_are_refused(generated, stats_of, tmp_path: Path) -> None:
    calibration = Calibration.read(stats_of(F32))
    del calibration._rows.tensors["tokens"]
    with pytest.raises(ModelFileError, match="holds no tokens to run the model over; calibrate anew"):
        calibration.kept.tokens(32)
