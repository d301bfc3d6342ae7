"""Experts that no token enters are named, and the run goes on."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from gguf import dequantize, quantize

from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_type import TensorType
from tests.support.methods import made
from tests.support.models import WITH_SHUT_EXPERTS


@pytest.mark.parametrize("method", ["gptq", "best"])
def test_experts_without_tokens(method: str, tmp_path: Path) -> None:
    text, output = tmp_path / "text.txt", tmp_path / "out.gguf"
    text.write_text("what somebody wrote about nothing at all, and more of it; " * 51)  # all chunks are alike
    source = WITH_SHUT_EXPERTS.write(tmp_path / "model.gguf")
    result = made(source, output, text, method).result
    named = {tensor["name"]: tensor["without_gptq"] for tensor in result["tensors"] if tensor["without_gptq"]}
    experts = {f"blk.0.ffn_{kind}_exps.weight" for kind in ("gate", "up", "down")}
    assert {
        name for name, why in named.items() if re.search(r"entered [2-6] of its 8 experts", why)
    } == experts
    for name in experts:
        weights, rounded = (
            next(tensor for tensor in ModelFile(path).tensors if tensor.name == name).weights().reshape(8, -1)
            for path in (source, output)
        )
        nearest = dequantize(quantize(weights, TensorType.Q4_0), TensorType.Q4_0)
        error, least = (np.square(weights - other).sum(axis=1) for other in (rounded, nearest))
        assert (error < 1.5 * least)[4:].all()  # of those that no token can enter
