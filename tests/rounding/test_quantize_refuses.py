"""Models and settings that cannot be quantized: what is said, and that nothing is left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from pyquant.errors import ConfigError, ModelFileError
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.gguf_file import finish
from tests.support.models import F32, Model


@pytest.mark.parametrize(
    ("tensors", "message"),
    [("nothing", "finds no tensor"), ("_norm", "finds no tensor"), ("(", "not a regular")],
)
def test_an_expression_that_finds_nothing(generated, tmp_path: Path, tensors: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        quantize_model(
            generated("f32, rows of 64 and 96"),
            tmp_path / "o",
            make_mode({"mode": "q4_0", "tensors": tensors}),
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["q4_0", "q8_table", "ggml:Q4_K", "ggml:F16"])
@pytest.mark.parametrize(
    ("tensor", "position", "value", "said"),
    [
        ("blk.1.ffn_down.weight", (3, 5), np.nan, "weight [5, 3]: nan"),
        ("blk.0.attn_norm.weight", (63,), np.inf, "weight [63]: inf"),  # one that is only copied
        ("token_embd.weight", (319, 0), -np.inf, "weight [0, 319]: -inf"),
    ],
)
def test_bad_weights_are_named(tmp_path: Path, name, tensor: str, position, value: float, said: str) -> None:
    def spoil(at: str, x: np.ndarray) -> np.ndarray:
        if at == tensor:
            x[position] = value
        return x

    source = Model(change=spoil).write(tmp_path / "bad.gguf")
    settings = {"mode": name, "table": "basic"} if name == "q8_table" else {"mode": name}
    with pytest.raises(ModelFileError) as raised:
        quantize_model(source, tmp_path / "out.gguf", make_mode(settings))
    assert f"{source}: tensor {tensor!r}, {said}" in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.gguf"]


@pytest.mark.parametrize("mode", ["q8_0", "ggml:F16", "ggml:Q5_0"])
def test_a_weight_too_large_for_fp16_is_named(
    tmp_path: Path, mode: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def spoil(name: str, x: np.ndarray) -> np.ndarray:
        if name == "output.weight":
            x[7, 8] = -1e7
        return x

    source = Model(change=spoil).write(tmp_path / "bad.gguf")
    with pytest.raises(ModelFileError, match=r"'output.weight', weight \[8, 7\]: -1e\+07 is too large"):
        quantize_model(source, tmp_path / "out.gguf", make_mode({"mode": mode, "pure": True}))
    assert capfd.readouterr() == ("", "")  # nothing by GGML, which finds it


@pytest.mark.parametrize("name", ["q4_0", "ggml:Q4_K", "ggml:F16"])
def test_a_quantized_source_is_refused(generated, tmp_path: Path, name: str) -> None:
    quantize_model(generated("f32, rows of 64 and 96"), tmp_path / "q8.gguf", make_mode({"mode": "q8_0"}))
    with pytest.raises(ModelFileError, match=r"already quantized: tensor '.*' is Q8_0; start from the F32"):
        quantize_model(tmp_path / "q8.gguf", tmp_path / "out.gguf", make_mode({"mode": name}))
    assert not (tmp_path / "out.gguf").exists()


def test_types_that_need_an_importance_matrix_say_so(generated, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"imatrix: .* needs an importance matrix; give one with --imatrix"):
        quantize_model(
            generated("f16, rows of 256, grouped queries"),
            tmp_path / "out.gguf",
            make_mode({"mode": "ggml:IQ2_XXS"}),
        )


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "no.gguf", "")
    writer.kv_data[0].clear()
    writer.add_tensor("a", np.zeros((4, 32), np.float32))
    finish(writer)
    with pytest.raises(ModelFileError, match=r"no 'general\.architecture'"):
        quantize_model(tmp_path / "no.gguf", tmp_path / "out.gguf", make_mode({"mode": "q4_0"}))


@pytest.mark.parametrize("name", ["q4_0", "ggml:Q8_0", "ggml:Q4_K_M"])
def test_rows_that_no_block_divides(tmp_path: Path, name: str) -> None:
    source = Model(n_embd=80, n_ff=72).write(tmp_path / "odd.gguf")
    message = rf"{name}: none of the matrices of .*odd.gguf can be quantized: their rows of 72, 80 weights"
    with pytest.raises(ConfigError, match=message):
        quantize_model(source, tmp_path / "out.gguf", make_mode({"mode": name}))
    assert [path.name for path in tmp_path.iterdir()] == ["odd.gguf"]
    quantize_model(source, tmp_path / "out.gguf", make_mode({"mode": "ggml:F16"}))


def test_some_rows_that_no_block_divides_are_named(tmp_path: Path) -> None:
    source = Model(n_embd=64, n_ff=72).write(tmp_path / "mixed.gguf")
    result = quantize_model(source, tmp_path / "out.gguf", make_mode({"mode": "q4_0"}))
    kept = {tensor.name: (tensor.type, tensor.fell_back_from) for tensor in result.fallbacks}
    assert kept["blk.0.ffn_down.weight"] == ("F16", "Q4_0")
    mode = make_mode({"mode": "q4_0", "tensors": "ffn_down"})
    with pytest.raises(ConfigError, match="their rows of 72 weights"):
        quantize_model(source, tmp_path / "out.gguf", mode, force=True)


@pytest.mark.parametrize(
    "settings", [{"mode": "q4_0_multizero", "radius": 2}, {"mode": "q4_0", "store": "q4_t"}]
)
def test_a_scheme_that_would_make_nothing(generated, tmp_path: Path, settings: dict[str, object]) -> None:
    stock, mode = tmp_path / "stock.gguf", make_mode(settings | {"pure": True, "requantize": True})
    quantize_model(generated(F32), stock, make_mode({"mode": "q4_0", "pure": True}))
    with pytest.raises(ConfigError, match=r"makes nothing of .*: its tensors are Q4_0 already, and stay"):
        quantize_model(stock, tmp_path / "out.gguf", mode)
    again = quantize_model(stock, tmp_path / "again.gguf", make_mode({"mode": "q4_0", "pure": True}))
    assert not any(tensor.quantized for tensor in again.tensors)  # as llama-quantize copies it
