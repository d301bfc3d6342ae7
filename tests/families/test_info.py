"""Check that what `pyquant info` says of a family's matrices is what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import OUTPUT, kind_of
from pyquant.models.treatment import untreated
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.families import FAMILIES


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_left_alone_is_named(
    family: Callable[[str], Path], stats: Callable[[str], Path], name: str, tmp_path: Path
) -> None:
    model = ModelFile(family(name))
    said = {what: {u.kind for u in untreated(model) if u.what == what} for what in ("quantized", "gptq")}
    mode = make_mode({"mode": "ggml:IQ4_NL", "pure": True, "hessian": stats(name)})
    result = quantize_model(model, tmp_path / "out.gguf", mode, dry_run=True)
    matrices = {tensor.name for tensor in model.tensors if len(tensor.shape) > 1}
    kept = {kind_of(t.name) for t in result.tensors if t.name in matrices and not t.quantized}
    assert said["quantized"] == kept
    # The output's input, which these calibrations have, is the embeddings' too in tied models.
    output = {"output"} if OUTPUT in matrices else {"token_embd"}
    assert said["gptq"] - output == {kind_of(tensor) for tensor in result.without_gptq}


def test_reasons(family: Callable[[str], Path]) -> None:
    reasons = {u.kind: u.why for u in untreated(ModelFile(family("Mamba")))}
    assert reasons == {
        "ssm_a": "llama.cpp keeps its type",
        "ssm_conv1d": "llama.cpp keeps its type",
        "ssm_dt": "blocks of 32 weights do not divide rows of 6",
        "token_embd": "its rows are looked up; as output matrix it needs `calibrate --process-output`",
    }
    untied = {u.kind: u.why for u in untreated(ModelFile(family("Mixtral")))}
    assert untied["token_embd"] == "its rows are looked up, not multiplied"
    assert "--process-output" in untied["output"]
    assert untied["ffn_gate_inp"] == "llama.cpp keeps its type"
