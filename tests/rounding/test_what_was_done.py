"""Check what a file and a result say of their making: only what was done, and where it differs by tensor."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pyquant
from pyquant.calibration import Calibration, open_calibration
from pyquant.calibration.calibrate import calibrate_model
from pyquant.errors import ConfigError
from pyquant.models.model_file import ModelFile
from pyquant.rounding.result import QuantizeResult, TensorResult
from pyquant.schemes.dampening import ON_ITS_OWN, PROPAGATED
from tests.support.command import run
from tests.support.models import Model
from tests.support.oracle import Oracle

F32, EXPERTS = "f32, rows of 64 and 96", "f16, experts"
NARROW = "blk.0.attn_q.weight"  # its rows are of 576 in the model of `narrow`

Quantize = Callable[..., tuple[QuantizeResult, ModelFile]]


@pytest.fixture
def quantize(generated: Callable[[str], Path], tmp_path: Path) -> Quantize:
    def do(name: str | Path, **settings: Any) -> tuple[QuantizeResult, ModelFile]:
        source = name if isinstance(name, Path) else generated(name)
        mode = pyquant.make_mode(settings)
        result = pyquant.quantize_model(source, tmp_path / "out.gguf", mode, force=True)
        return result, ModelFile(tmp_path / "out.gguf")

    return do


@pytest.mark.parametrize("key", ["dampening", "error_propagation"])
def test_what_is_of_a_calibration_is_refused_without_one(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: is of Hessian statistics, and none are given"):
        pyquant.make_mode({"mode": "ggml:Q4_K", key: 1})
    done = run("quantize", "in.gguf", "out.gguf", "--mode", "q4_0", f"--{key}", 1)
    assert (done.returncode, done.stdout) == (2, "")


def test_defaults_of_dampening() -> None:
    calibrated = {"mode": "q4_0", "hessian": "stats"}
    assert pyquant.make_mode(calibrated).dampening == ON_ITS_OWN
    assert pyquant.make_mode({**calibrated, "error_propagation": 4}).dampening == PROPAGATED


def test_a_mode_that_absorbs_nothing_says_nothing_of_it(quantize: Quantize, stats_of) -> None:
    result, file = quantize(F32, mode="q8_0", hessian=str(stats_of(F32)))
    assert file.get("pyquant.mode") == "q8_0"
    said = [key for key in file.keys if "dampening" in key or "imatrix" in key or "without_gptq" in key]
    assert said == []
    quantized = {tensor.name for tensor in result.tensors if tensor.quantized}
    assert set(result.without_gptq) == quantized
    assert result.without_gptq[NARROW] == "mode q8_0 rounds every weight to the nearest code"


def test_an_imatrix_that_a_mode_does_not_use_is_not_named(quantize: Quantize, stats_of) -> None:
    imatrix = str(stats_of(F32).with_name("imatrix.gguf"))
    _, table = quantize(F32, mode="q8_table", table="basic", imatrix=imatrix)
    assert table.get("quantize.imatrix.file") is None
    _, q4_0 = quantize(F32, mode="q4_0", imatrix=imatrix)
    assert q4_0.get("quantize.imatrix.file") == imatrix[:127]


def test_tensors_whose_input_is_unknown_are_named(quantize: Quantize, stats_of) -> None:
    result, file = quantize(F32, mode="ggml:Q4_0", hessian=str(stats_of(F32)))
    unknown = {tensor.name for tensor in result.tensors if tensor.quantized}
    unknown -= set(Calibration.read(stats_of(F32)).matrices)
    assert unknown
    reasons = {name: result.without_gptq.get(name) for name in unknown}
    output = reasons.pop("output.weight")
    assert output == "its input was not collected; `pyquant calibrate --process-output` does that"
    assert reasons == {"token_embd.weight": "its rows are looked up, not multiplied"}
    assert file.get("pyquant.without_gptq").split() == list(result.without_gptq)
    assert float(file.get("pyquant.dampening")) == ON_ITS_OWN


def test_embeddings_that_are_the_output_matrix_too(quantize: Quantize, text: Path, tmp_path: Path) -> None:
    model = Model(n_embd=64, n_ff=64, tied=True).write(tmp_path / "tied.gguf")
    for process_output, reason in (
        (
            False,
            "its rows are looked up; as output matrix it needs `calibrate --process-output`",
        ),
        (True, None),
    ):
        stats = tmp_path / f"stats-{process_output}"
        calibrate_model(model, [text], stats, n_ctx=64, n_chunks=16, process_output=process_output)
        result, file = quantize(model, mode="ggml:Q4_0", hessian=str(stats))
        assert result.without_gptq.get("token_embd.weight") == reason
    alone = {tensor.name: tensor.data() for tensor in file.tensors}
    # A correction of the output matrix for the matrices before it would change what is looked up.
    dampening = {"dampening": ON_ITS_OWN, "error_propagation": 16}
    _, file = quantize(model, mode="ggml:Q4_0", hessian=str(stats), **dampening)
    changed = {tensor.name for tensor in file.tensors if tensor.data() != alone[tensor.name]}
    assert "blk.1.ffn_down.weight" in changed
    assert "token_embd.weight" not in changed


def test_a_file_says_how_it_was_made(quantize: Quantize, stats_of, text: Path) -> None:
    stats = stats_of(F32)
    _, file = quantize(F32, mode="ggml:Q4_0", hessian=str(stats))
    assert file.get("pyquant.version") == pyquant.__version__
    assert file.get("pyquant.method") == "GPTQ"
    less_a_newline = text.read_bytes().removesuffix(b"\n")
    assert file.get("pyquant.texts.sha256") == hashlib.sha256(less_a_newline).hexdigest()
    _, file = quantize(F32, mode="ggml:Q4_0", hessian=str(stats), error_propagation=16, equalize=True)
    assert file.get("pyquant.method") == "GPTQ, cross-layer equalization, error propagation"
    for settings in ({"mode": "ggml:Q4_0"}, {"mode": "q8_0", "hessian": str(stats)}):
        _, file = quantize(F32, **settings)
        assert not {"pyquant.version", "pyquant.method", "pyquant.texts.sha256"} & file.keys


@pytest.mark.parametrize("settings", [{}, {"error_propagation": 8}, {"equalize": True}])
def test_a_part_that_does_nothing_is_named_and_rounded_as_by_llama_quantize(
    quantize: Quantize, text: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    def dead(name: str, x: NDArray[np.float32]) -> NDArray[np.float32]:
        return 0 * x if name == "blk.1.ffn_norm.weight" else x

    source = Model(change=dead).write(tmp_path / "dead.gguf")
    calibrate_model(source, [text], tmp_path / "stats", n_ctx=64, n_chunks=16, threads=1)
    result, file = quantize(source, mode="ggml:Q4_0", hessian=str(tmp_path / "stats"), **settings)
    matrices = [f"blk.1.ffn_{kind}.weight" for kind in ("down", "gate", "up")]
    assert [name for name, why in result.without_gptq.items() if why == "only zeros entered it"] == matrices
    made = {tensor.name: tensor.data() for tensor in file.tensors}
    _, stock = quantize(source, mode="ggml:Q4_0")
    plain = {tensor.name: tensor.data() for tensor in stock.tensors}
    assert all(made[name] == plain[name] for name in matrices)
    assert made["blk.0.ffn_up.weight"] != plain["blk.0.ffn_up.weight"]


def test_an_importance_matrix_absorbs_nothing(quantize: Quantize, stats_of) -> None:
    imatrix = str(stats_of(F32).with_name("imatrix.gguf"))
    result, file = quantize(F32, mode="ggml:Q4_0", hessian=imatrix)
    assert result.without_gptq[NARROW] == "an importance matrix has no Hessian statistics"
    assert file.get("pyquant.dampening") is None


def test_nothing_is_missing_where_no_calibration_is_given(quantize: Quantize) -> None:
    result, file = quantize(F32, mode="q4_0")
    assert result.without_gptq == {}
    assert not {"pyquant.dampening", "pyquant.without_gptq"} & file.keys


@pytest.fixture
def narrow(tmp_path: Path) -> Path:
    """Rows of 576, which blocks of 256 do not divide."""
    return Model(n_embd=576, n_ff=256, n_layer=1, n_head=9, n_head_kv=9).write(tmp_path / "narrow.gguf")


@pytest.mark.parametrize(("wanted", "type_"), [("Q4_K", "Q5_0"), ("Q6_K", "Q8_0"), ("IQ4_XS", "IQ4_NL")])
def test_types_that_fall_back_are_named(quantize: Quantize, narrow: Path, wanted: str, type_: str) -> None:
    result, _ = quantize(narrow, mode=f"ggml:{wanted}", pure=True)
    by_name = {tensor.name: tensor for tensor in result.tensors}
    assert by_name[NARROW].fell_back_from == wanted
    assert by_name[NARROW].type == type_
    assert by_name["blk.0.ffn_down.weight"].fell_back_from is None  # rows of 256
    assert {tensor.type for tensor in result.fallbacks} == {type_}
    assert by_name["blk.0.attn_norm.weight"] not in result.fallbacks
    said = [tensor["fell_back_from"] for tensor in result.to_json()["tensors"]]
    assert said.count(wanted) == len(result.fallbacks) > 1


def test_rows_that_no_block_divides_are_named(quantize: Quantize, tmp_path: Path) -> None:
    odd = Model(n_embd=72, n_ff=96, n_layer=1, n_head=4, n_head_kv=4).write(tmp_path / "odd.gguf")
    for mode, wanted in (("q8_0", "Q8_0"), ("q4_0", "Q4_0")):
        result, _ = quantize(odd, mode=mode)
        by_name = {tensor.name: tensor for tensor in result.tensors}
        assert (by_name[NARROW].fell_back_from, by_name[NARROW].type) == (wanted, "F16")
    result, _ = quantize(odd, mode="q4_0", store="q4_t")
    assert {tensor.fell_back_from for tensor in result.fallbacks} >= {"Q4_T"}


@pytest.mark.ci
def test_the_command_says_what_fell_back(narrow: Path, tmp_path: Path) -> None:
    dry = ["quantize", narrow, tmp_path / "out.gguf", "--mode", "ggml:Q4_K", "--pure", "--dry-run"]
    done = run(*dry)
    assert done.returncode == 0, done.stderr
    said = r"(\d+) of (\d+) tensors are of type Q5_0, as blocks of Q4_K do not divide their rows: (.*)"
    n, n_wanted, names = re.search(said, done.stderr).groups()
    tensors = json.loads(run(*dry, "--json").stdout)["tensors"]
    fallen = [tensor["name"] for tensor in tensors if tensor["fell_back_from"]]
    assert int(n) == len(fallen) > 1
    assert int(n_wanted) == sum(tensor["type"] != tensor["source_type"] for tensor in tensors)
    assert names.startswith(", ".join(fallen[:2]))


@pytest.mark.oracle
def test_as_many_fall_back_as_llama_quantize_says(oracle: Oracle, narrow: Path, tmp_path: Path) -> None:
    printed = oracle.run("llama-quantize", "--pure", narrow, tmp_path / "theirs.gguf", "Q4_K", "1")
    done = run("quantize", narrow, tmp_path / "out.gguf", "--mode", "ggml:Q4_K", "--pure", "--dry-run")
    theirs = re.search(r"(\d+) of (\d+) tensor\(s\) required fallback quantization", printed)
    ours = re.search(r"(\d+) of (\d+) tensors are of type", done.stderr)
    assert theirs[1] == ours[1]


def test_a_calibration_is_handed_on(stats_of) -> None:
    opened = Calibration.read(stats_of(F32))
    assert open_calibration(opened) is opened
    assert open_calibration(str(stats_of(F32))).matrices == opened.matrices


@pytest.mark.parametrize(
    ("source", "target", "requantized"),
    [("Q5_0", "Q4_0", True), ("Q5_0", "Q5_0", False), ("F16", "Q4_0", False), ("Q5_0", "F16", False)],
)
def test_a_tensor_is_requantized_where_both_types_are_quantized_and_differ(
    source: str, target: str, requantized: bool
) -> None:
    assert TensorResult("a", source, target, 32, 22).requantized == requantized
