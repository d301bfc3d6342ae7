"""Check what `pyquant info` says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter

from pyquant.errors import ModelFileError
from pyquant.evaluate.speed import measure_speed
from pyquant.machine.environment import environment
from pyquant.models.info import model_info
from pyquant.models.model_file import ModelFile
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.gguf_file import finish
from tests.support.models import Model


def command(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pyquant", "info", *map(str, arguments)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def quantized(tmp_path: Path) -> Path:
    mode = make_mode({"mode": "q4_0_multizero", "radius": 2})
    quantize_model(Model(type=Type.F16).write(tmp_path / "f16.gguf"), tmp_path / "q.gguf", mode)
    return tmp_path / "q.gguf"


def test_a_model_in_short(quantized: Path) -> None:
    info = model_info(quantized)
    tensors = ModelFile(quantized).tensors
    assert (info.architecture, info.name, info.file_type) == ("llama", "generated", "Q4_0")
    assert info.n_weights == sum(t.n_weights for t in tensors)
    assert info.n_bytes == quantized.stat().st_size
    assert info.bits_per_weight == 8 * info.n_bytes / info.n_weights
    assert {share.type: share.n_tensors for share in info.types} == {"Q4_0": 15, "Q8_0": 1, "F32": 5}
    assert sum(share.n_weights for share in info.types) == info.n_weights
    assert info.provenance["mode"] == "q4_0_multizero"
    assert info.provenance["radius"] == 2
    assert info.provenance["source.sha256"] == ModelFile(quantized.with_name("f16.gguf")).sha256()
    assert info.metadata["tokenizer.ggml.tokens"] == {"length": 320}
    assert [t.name for t in info.tensors] == [t.name for t in tensors]


def test_shards_are_one_model(tmp_path: Path) -> None:
    whole = model_info(Model().write(tmp_path / "whole.gguf"))
    path = Model().write(tmp_path / "split.gguf", tensors_per_shard=4)
    split = model_info(path)
    assert split.n_files > 1
    (speed,) = measure_speed([path], n_prompt=4, n_generate=1, rounds=1, threads=1).models
    assert speed.n_bytes == split.n_bytes
    assert (split.types, split.n_weights) == (whole.types, whole.n_weights)


def test_metadata_of_any_kind_becomes_json(tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_float32("odd.nan", float("nan"))
    writer.add_array("odd.short", [1.5, float("inf")])
    writer.add_array("odd.texts", ["a", "b"])
    writer.add_string("odd.text", "colour \x1b[31m")
    finish(writer)
    info = model_info(path)
    assert info.bits_per_weight is None
    assert info.metadata["odd.nan"] == "nan"
    assert info.metadata["odd.short"] == [1.5, "inf"]
    assert info.metadata["odd.texts"] == ["a", "b"]
    json.dumps(info.to_json(), allow_nan=False)
    assert "\x1b" not in command(path)


def test_a_file_type_that_is_no_number(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "odd.gguf", "llama")
    writer.add_array("general.file_type", [1, 2])
    finish(writer)
    assert model_info(tmp_path / "odd.gguf").file_type == "unknown ([1, 2])"


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no such file"):
        model_info(tmp_path / "missing.gguf")


def test_the_environment_is_complete() -> None:
    report = environment()
    assert all(value not in (None, "") for value in report.values())
    assert f"_core_{report['variant']}." in report["extension"]
    assert Path(report["extension"]).is_file()


@pytest.mark.ci
def test_the_command(quantized: Path) -> None:
    assert json.loads(command("--json"))["schema"] == "pyquant.environment/2"
    assert "variant" in command()
    assert "blk.0.ffn_up.weight" in command(quantized, "--tensors")
    printed = command(quantized)
    assert "blk.0.ffn_up.weight" not in printed
    assert "pyquant mode" in printed
    assert "tensors" not in json.loads(command(quantized, "--json"))
    assert len(json.loads(command(quantized, "--json", "--tensors"))["tensors"]) == 21


@pytest.mark.ci
def test_what_is_left_alone(tmp_path: Path) -> None:
    path = Model(n_expert=3, type=Type.F16).write(tmp_path / "model.gguf")
    printed = command(path)
    assert re.search(r"ffn_gate_inp +quantized +llama.cpp keeps its type +2 +384", printed)
    assert re.search(r"token_embd +gptq +its rows are looked up, not multiplied +1 +20,480", printed)
    left = json.loads(command(path, "--json"))["untreated"]
    assert [entry["kind"] for entry in left] == ["output", "token_embd", "ffn_gate_inp"]


def test_an_architecture_that_llama_cpp_does_not_know(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "model.gguf", "no_such_thing")
    writer.add_tensor("blk.0.attn_q.weight", np.zeros((32, 32), np.float32))
    finish(writer)
    (left,) = model_info(tmp_path / "model.gguf").untreated
    assert (left.kind, left.what) == ("attn_q", "quantized")
    assert "unknown model architecture: 'no_such_thing'" in left.why
