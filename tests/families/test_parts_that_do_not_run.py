"""Parts of a model that llama.cpp does not run, or that are quantized: layers of MTP, experts in MXFP4."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Type

from pyquant.calibration.calibrate import calibrate_model
from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.models import Model
from tests.support.oracle import Oracle
from tests.support.other_models import gemma3n, glm4


def test_layers_of_mtp_are_named_and_rounded(text: Path, tmp_path: Path) -> None:
    source, output = glm4(tmp_path / "model.gguf"), tmp_path / "out.gguf"
    calibrate_model(source, [text], tmp_path / "stats", n_ctx=64, n_chunks=8, threads=1)
    mode = make_mode({"mode": "ggml:Q4_0", "hessian": tmp_path / "stats"})
    done = quantize_model(source, output, mode, threads=1)
    of_mtp = {name for name in done.without_gptq if name.startswith("blk.1.")}
    matrices = {t.name for t in ModelFile(source).tensors if t.layer == 1 and len(t.shape) > 1}
    assert of_mtp == matrices
    assert {done.without_gptq[name] for name in of_mtp} == {"its input was not collected"}
    assert {tensor.type for tensor in done.tensors if tensor.name in of_mtp} == {"Q4_0"}
    errors = {
        tensor.name: tensor.squared_error / tensor.squared_weight
        for tensor in done.tensors
        if tensor.quantized
    }
    assert max(errors[name] for name in of_mtp) < 0.01  # 4 bits of normal weights: .006 to .008


@pytest.mark.oracle
@pytest.mark.parametrize("write", [glm4, gemma3n])
@pytest.mark.parametrize("type_", ["Q4_0", "Q8_0"])
def test_files_are_those_of_llama_quantize(oracle: Oracle, write, type_: str, tmp_path: Path) -> None:
    source = write(tmp_path / "model.gguf")
    theirs = oracle.quantize(source, tmp_path / "theirs.gguf", type_)
    quantize_model(source, tmp_path / "ours.gguf", make_mode({"mode": f"ggml:{type_}"}), threads=1)
    assert (tmp_path / "ours.gguf").read_bytes() == theirs.read_bytes()


@pytest.mark.oracle
def test_experts_in_mxfp4(oracle: Oracle, tmp_path: Path) -> None:
    """Experts of gpt-oss as it is published are named, and rounded again where that is asked for."""
    plain = Model(n_embd=256, n_ff=256, n_layer=1, n_expert=3, type=Type.F16).write(tmp_path / "plain.gguf")
    source = oracle.quantize(plain, tmp_path / "mxfp4.gguf", "MXFP4_MOE")
    quantize_model(plain, tmp_path / "ours.gguf", make_mode({"mode": "ggml:MXFP4_MOE"}), threads=1)
    assert (tmp_path / "ours.gguf").read_bytes() == source.read_bytes()
    with pytest.raises(
        ModelFileError, match=r"already quantized: tensor 'blk\.0\.ffn_\w+_exps\.weight' is MXFP4"
    ):
        quantize_model(
            source, tmp_path / "out.gguf", make_mode({"mode": "ggml:Q4_K", "tensors": "_exps"}), threads=1
        )
    again = oracle.quantize(source, tmp_path / "theirs.gguf", "Q4_K_M", "--allow-requantize")
    mode = make_mode({"mode": "ggml:Q4_K_M", "requantize": True})
    done = quantize_model(source, tmp_path / "q4_k_m.gguf", mode, threads=1)
    assert {t.source_type for t in done.tensors if t.requantized} >= {"MXFP4"}
    theirs = {t.name: t.data() for t in ModelFile(again).tensors}
    assert {t.name: t.data() for t in ModelFile(tmp_path / "q4_k_m.gguf").tensors} == theirs
