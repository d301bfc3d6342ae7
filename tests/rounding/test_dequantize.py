"""Quantized models as floats: against GGML's own decoders and stock llama-quantize."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize

from pyquant import _core
from pyquant.errors import ConfigError, ModelFileError, OutputError
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.pack import pack_model
from pyquant.models.tensor import padded
from pyquant.models.tensor_type import TensorType as Type
from pyquant.models.unpack_q4_t import unpack_q4_t
from pyquant.rounding.dequantize import dequantize_model
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.command import run
from tests.support.models import Model
from tests.support.oracle import Oracle

FLOATS = {"F16": np.float16, "F32": np.float32}

# All that GGML both makes and reads.
QUANTIZED = [
    type_
    for type_ in Type
    if (type_.name not in ("F32", "F16", "BF16", "F64", "Q4_T", "Q8_1", "Q8_K") and type_.name[0] != "I")
    or type_.name.startswith("IQ")
]
NOT_IN_GGUF_PY = (Type.Q1_0, Type.Q2_0)  # of this version
SIZES = {**{Type(int(type_)): size for type_, size in GGML_QUANT_SIZES.items()}, Type.Q2_0: (64, 18)}
every_type = pytest.mark.parametrize("type_", QUANTIZED, ids=lambda type_: type_.name)


def blocks(type_: Type, n_weights: int, seed: int) -> bytes:
    """Make blocks of random bytes that fp16 can hold the weights of."""
    n_per_block, n_bytes = SIZES[type_]
    n, rng = n_weights // n_per_block, np.random.default_rng(seed)
    stored = rng.integers(0, 256, (4 * n + 64, n_bytes), np.uint8)
    values = _core.ggml_decoder(int(type_)).decode(stored, n_per_block)
    with np.errstate(invalid="ignore"):
        usable = np.abs(values).max(axis=1) < 65504
    return stored[usable][:n].tobytes()


def write(source: Path, path: Path, type_: Type) -> Path:
    """Give a model random blocks of a type in all matrices, also one that llama-quantize does not make."""
    model, header, data = ModelFile(source), _core.Gguf(), []
    header.copy_keys(model.header)
    for seed, tensor in enumerate(model.tensors):
        is_matrix = len(tensor.shape) > 1
        stored = blocks(type_, tensor.n_weights, seed) if is_matrix else tensor.data()
        header.add_tensor(tensor.name, int(type_ if is_matrix else tensor.type), tensor.shape)
        data.append(stored.ljust(padded(len(stored)), b"\0"))
    path.write_bytes(header.header() + b"".join(data))
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small unquantized model with rows of 256."""
    model = Model(n_embd=256, n_ff=256, n_layer=1, n_head=2, n_head_kv=2, n_vocab=300)
    return model.write(tmp_path_factory.mktemp("plain") / "plain.gguf")


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("type_", "to"),
    [*((type_, "F16") for type_ in QUANTIZED), (Type.Q4_1, "BF16"), (Type.Q6_K, "BF16"), (Type.IQ3_S, "F32")],
    ids=lambda value: getattr(value, "name", value),
)
def test_the_file_is_llama_quantizes(
    oracle: Oracle, plain: Path, type_: Type, to: str, tmp_path: Path
) -> None:
    source = write(plain, tmp_path / "quantized.gguf", type_)
    ours, theirs = tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
    result = dequantize_model(source, ours, to)
    oracle.quantize(source, theirs, to, "--allow-requantize")
    assert ours.read_bytes() == theirs.read_bytes()
    assert list(result.tensors) == [type_.name]


@every_type
def test_weights_are_what_blocks_stand_for(plain: Path, type_: Type, tmp_path: Path) -> None:
    source = write(plain, tmp_path / "quantized.gguf", type_)
    dequantize_model(source, tmp_path / "f32.gguf", "F32")
    if type_ in NOT_IN_GGUF_PY:
        stored = {tensor.name: tensor.weights() for tensor in ModelFile(source).tensors}
    else:
        stored = {t.name: dequantize(t.data, t.tensor_type) for t in GGUFReader(source).tensors}
    for tensor in GGUFReader(tmp_path / "f32.gguf").tensors:
        assert tensor.tensor_type == GGMLQuantizationType.F32
        np.testing.assert_array_equal(tensor.data.reshape(stored[tensor.name].shape), stored[tensor.name])


@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("made", ["split", "pqz", "q4_t"])
def test_other_files(made: str, to: str, tmp_path: Path) -> None:
    model, settings = Model(n_embd=64, n_ff=96, n_expert=2), {"mode": "q8_table", "table": "balanced"}
    base = model.write(tmp_path / "model.gguf")
    quantize_model(base, tmp_path / "stock.gguf", make_mode(settings))
    expected = {tensor.name: tensor.weights() for tensor in ModelFile(tmp_path / "stock.gguf").tensors}
    source = tmp_path / f"source.{'pqz' if made == 'pqz' else 'gguf'}"
    if made == "q4_t":
        quantize_model(base, source, make_mode({**settings, "store": "q4_t"}))
    elif made == "pqz":
        pack_model(tmp_path / "stock.gguf", source)
    else:
        (tmp_path / "split").mkdir()
        source = model.write(tmp_path / "split" / "model.gguf", tensors_per_shard=5)
        expected = {tensor.name: tensor.weights() for tensor in ModelFile(base).tensors}
    dequantize_model(source, tmp_path / "out.gguf", to)
    out = ModelFile(tmp_path / "out.gguf")
    assert out.get("general.file_type") == {"F16": 1, "F32": 0}[to]
    assert not [key for key in out.keys if key.startswith(("pyquant.", "split."))]
    for tensor in out.tensors:
        one_dimension = len(tensor.shape) == 1
        assert tensor.type.name in {to} | ({"F32"} if one_dimension or "gate_inp" in tensor.name else set())
        stored = FLOATS[tensor.type.name]
        np.testing.assert_array_equal(tensor.weights(), expected[tensor.name].astype(stored))


def test_threads_do_not_change_the_file(plain: Path, tmp_path: Path) -> None:
    source = write(plain, tmp_path / "quantized.gguf", Type.Q4_1)
    for threads in (1, 3):
        dequantize_model(source, tmp_path / f"{threads}.gguf", threads=threads)
    assert (tmp_path / "1.gguf").read_bytes() == (tmp_path / "3.gguf").read_bytes()


@pytest.mark.oracle
def test_weights_that_f16_cannot_hold(oracle: Oracle, tmp_path: Path) -> None:
    def large(name: str, x: np.ndarray) -> np.ndarray:
        return np.full_like(x, 1e5) if name == "blk.1.ffn_up.weight" else x

    plain, source = Model(change=large).write(tmp_path / "plain.gguf"), tmp_path / "quantized.gguf"
    quantize_model(plain, source, make_mode({"mode": "q8_0"}))  # its scales are small enough
    with pytest.raises(
        ModelFileError, match=r"'blk.1.ffn_up.weight', .*too large for the new type; BF16 and F32"
    ):
        dequantize_model(source, tmp_path / "out.gguf")
    oracle.refuses(
        "data validation failed", "llama-quantize", "--allow-requantize", source, tmp_path / "o", "F16"
    )
    dequantize_model(source, tmp_path / "out.gguf", "BF16")
    weights = {tensor.name: tensor.weights() for tensor in ModelFile(tmp_path / "out.gguf").tensors}
    assert np.all(np.abs(weights["blk.1.ffn_up.weight"] / 1e5 - 1) < 0.01)


def test_what_is_refused(plain: Path, tmp_path: Path) -> None:
    source = write(plain, tmp_path / "quantized.gguf", Type.Q4_0)
    with pytest.raises(OutputError, match="never overwritten"):
        dequantize_model(source, source, force=True)
    with pytest.raises(ConfigError, match="expected F16, BF16 or F32, got 'Q4_0'"):
        dequantize_model(source, tmp_path / "out.gguf", "Q4_0")
    assert [path.name for path in tmp_path.iterdir()] == ["quantized.gguf"]


def test_the_command(plain: Path, tmp_path: Path) -> None:
    source = write(plain, tmp_path / "quantized.gguf", Type.Q4_1)
    out = tmp_path / "out.gguf"
    done = run("dequantize", source, out, "--type", "bf16", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["type"] == "BF16"
    assert result["tensors"] == {"Q4_1": 9}
    assert "what Q4_1 left of them" in done.stderr
    done = run("dequantize", plain, out, "--force")
    assert (done.returncode, "has no quantized tensors" in done.stderr) == (0, True)


@pytest.mark.parametrize("mode", ["ggml:Q4_K", "q4_0", "q8_table"])
def test_quantized_models_are_quantized_again_where_asked(plain: Path, mode: str, tmp_path) -> None:
    source = write(plain, tmp_path / "quantized.gguf", Type.Q4_1)
    dequantize_model(source, tmp_path / "floats.gguf", "F32")
    settings = {"mode": mode} | ({"table": "basic"} if mode == "q8_table" else {})
    with pytest.raises(ModelFileError, match=r"already quantized.*--requantize.*`pyquant dequantize`"):
        quantize_model(source, tmp_path / "again.gguf", make_mode(settings))
    result = quantize_model(source, tmp_path / "again.gguf", make_mode({**settings, "requantize": True}))
    quantize_model(tmp_path / "floats.gguf", tmp_path / "expected.gguf", make_mode(settings))
    again, expected = ModelFile(tmp_path / "again.gguf"), ModelFile(tmp_path / "expected.gguf")
    assert {t.name: t.data() for t in again.tensors} == {t.name: t.data() for t in expected.tensors}
    assert again.get("pyquant.requantized_from") == "Q4_1"
    assert expected.get("pyquant.requantized_from") is None
    assert {tensor.requantized for tensor in result.tensors if len(tensor.name) > 3} == {True, False}


def test_nothing_is_said_of_blocks_that_are_no_more(plain: Path, tmp_path: Path) -> None:
    packed, stock, again = (tmp_path / f"{name}.gguf" for name in ("q4_t", "stock", "again"))
    settings = {"mode": "q8_table", "table": "balanced", "store": "q4_t"}
    quantize_model(plain, packed, make_mode(settings))
    quantize_model(packed, again, make_mode({"mode": "ggml:Q8_0", "requantize": True}))
    ours = {key for key in ModelFile(again).keys if key.startswith("pyquant.")}
    assert ours == {"pyquant.requantized_from"}
    unpack_q4_t(packed, stock)
    assert ModelFile(stock).get("pyquant.table.values")


@pytest.mark.oracle
def test_requantizing_gives_llama_quantizes_blocks(oracle: Oracle, plain: Path, tmp_path: Path) -> None:
    source = write(plain, tmp_path / "quantized.gguf", Type.Q5_0)
    ours, theirs = tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
    quantize_model(source, ours, make_mode({"mode": "ggml:Q4_K", "requantize": True}))
    oracle.quantize(source, theirs, "Q4_K", "--allow-requantize")
    for got, expected in zip(ModelFile(ours).tensors, ModelFile(theirs).tensors, strict=True):
        assert (got.name, got.type, got.data()) == (expected.name, expected.type, expected.data())


def test_requantizing_says_so(plain: Path, tmp_path: Path) -> None:
    source = write(plain, tmp_path / "quantized.gguf", Type.Q5_0)
    done = run("quantize", source, tmp_path / "out.gguf", "--mode", "ggml:Q4_0", "--requantize")
    assert done.returncode == 0, done.stderr
    assert "rounded a second time, on top of the errors of Q5_0: " in done.stderr
