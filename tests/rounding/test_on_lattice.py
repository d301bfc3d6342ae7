"""Models trained for a type, or quantized before: their weights stay as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from pyquant.calibration.calibrate import calibrate_model
from pyquant.data import evaluation_text, model_path
from pyquant.errors import ConfigError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.dequantize import dequantize_model
from pyquant.rounding.on_lattice import lattice_encoder
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode

KINDS = ("Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "Q4_1", "Q5_1")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = tmp_path_factory.mktemp("text") / "text.txt"
    text.write_text(evaluation_text())
    return text


@pytest.fixture(scope="module", params=KINDS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, text: Path):
    """Give a type, the bundled model rounded to it as F16, and Hessians of that."""
    folder = tmp_path_factory.mktemp(request.param)
    quantized, floats, hessian = (folder / name for name in ("quantized.gguf", "f16.gguf", "hessian.gguf"))
    quantize_model(model_path(), quantized, make_mode({"mode": f"ggml:{request.param}", "pure": True}))
    dequantize_model(quantized, floats)
    calibrate_model(floats, [text], hessian, n_chunks=1)
    return request.param, floats, hessian


def matrices(path: Path) -> dict[str, np.ndarray]:
    """Read the blocks of the matrices in layers."""
    tensors = (tensor for tensor in GGUFReader(path).tensors if tensor.name.startswith("blk."))
    return {tensor.name: np.array(tensor.data) for tensor in tensors if len(tensor.shape) > 1}


@pytest.mark.parametrize("more", [{}, {"error_propagation": 1}], ids=["GPTQ", "error propagation"])
def test_weights_come_back_to_the_last_bit(trained, tmp_path: Path, more: dict) -> None:
    kind, floats, hessian = trained
    settings = {"mode": f"ggml:{kind}", "pure": True, "hessian": str(hessian)} | more
    done = quantize_model(floats, tmp_path / "again.gguf", make_mode(settings))
    dequantize_model(tmp_path / "again.gguf", tmp_path / "floats.gguf")
    before, after = matrices(floats), matrices(tmp_path / "floats.gguf")
    assert before.keys() == after.keys()
    for name, weights in before.items():
        assert done.without_gptq[name] == f"the weights lie on a lattice of {kind}, and stay as they are"
        np.testing.assert_array_equal(after[name], weights)


def test_equalizing_is_refused(trained, tmp_path: Path) -> None:
    kind, floats, hessian = trained
    mode = make_mode({"mode": f"ggml:{kind}", "hessian": str(hessian), "equalize": True})
    with pytest.raises(ConfigError, match=r"^equalize: the weights of blk\.0\.\w+\.weight lie on a lattice"):
        quantize_model(floats, tmp_path / "out.gguf", mode)


def test_other_weights_lie_on_none() -> None:
    for tensor in ModelFile(model_path()).tensors:
        if len(tensor.shape) > 1:
            assert not [kind for kind in KINDS if lattice_encoder(tensor, Type[kind])]
