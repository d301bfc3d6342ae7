"""Packed models: the same GGUF comes back, as small as its codes allow, and is read as such."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from hypothesis import given
from hypothesis import strategies as st

import pyquant
from pyquant import _core
from pyquant.errors import ModelFileError, OutputError
from pyquant.formulas import entropy
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.as_gguf import as_gguf
from pyquant.models.pqz.block_layout import BYTES, TEXT, Field, kernel
from pyquant.models.pqz.index import FRAME_BYTES
from pyquant.models.pqz.layout_of_type import LAYOUTS, codes
from pyquant.models.pqz.pack import PackResult, entropy_bytes, pack_model
from pyquant.models.pqz.pqz_file import PqzFile
from pyquant.models.pqz.unpack import unpack_model
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.gguf_file import finish
from tests.support.models import MODELS, Model
from tests.support.plain_reader import read


def there_and_back(source: Path, folder: Path, threads: int = 2) -> PackResult:
    """Packs and unpacks; the GGUF must be the same."""
    report = pack_model(source, folder / "there.pqz", threads=threads)
    back = unpack_model(folder / "there.pqz", folder / "back.gguf", threads=threads)
    assert (folder / "back.gguf").read_bytes() == source.read_bytes()
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert report.sha256 == back.sha256 == digest
    assert report.output_bytes == back.source_bytes == (folder / "there.pqz").stat().st_size
    return report


def one_tensor(path: Path, kind: Type, rows: np.ndarray) -> Path:
    """A GGUF of a tensor with these bytes. rows: (n_rows, bytes of a row) uint8."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("weights", rows, raw_dtype=kind)
    finish(writer)
    return path


@pytest.mark.parametrize("name", MODELS)
def test_models_come_back(name: str, generated: Callable[[str], Path], tmp_path: Path) -> None:
    there_and_back(generated(name), tmp_path)


def test_an_odd_alignment_and_no_tokenizer(tmp_path: Path) -> None:
    there_and_back(Model(alignment=1024, tokenizer=False).write(tmp_path / "m.gguf"), tmp_path)


def test_bytes_after_the_last_tensor_come_back(small_model: Path, tmp_path: Path) -> None:
    longer = tmp_path / "longer.gguf"
    longer.write_bytes(small_model.read_bytes() + b"whatever follows")
    there_and_back(longer, tmp_path)


def test_a_model_without_tensors_comes_back(tmp_path: Path) -> None:
    empty = tmp_path / "empty.gguf"
    empty.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    assert there_and_back(empty, tmp_path).bits_per_weight is None


@pytest.mark.parametrize("kind", gguf.GGML_QUANT_SIZES, ids=lambda kind: kind.name)
def test_layouts_have_the_bytes_of_ggmls_blocks(kind: Type) -> None:
    n_weights, n_bytes = gguf.GGML_QUANT_SIZES[kind]
    block = sum(field.length for field in LAYOUTS.get(kind, BYTES))
    assert n_bytes % block == 0
    assert n_weights == 1 or n_bytes == block or kind not in LAYOUTS


@pytest.mark.parametrize(
    "kind", [kind for kind in LAYOUTS if kind in gguf.GGML_QUANT_SIZES], ids=lambda kind: kind.name
)
def test_blocks_of_every_type_come_back(kind: Type, tmp_path: Path) -> None:
    rng = np.random.default_rng(int(kind))
    block = sum(field.length for field in LAYOUTS[kind])
    rows = rng.binomial(255, 0.5, (7, 300 * block)).astype(np.uint8)
    rows[3] = 0
    layout = kernel(LAYOUTS[kind])
    coded = _core.encode_frame(layout, rows.tobytes())
    assert _core.decode_frame(layout, coded, rows.size) == rows.tobytes()
    there_and_back(one_tensor(tmp_path / "m.gguf", kind, rows), tmp_path)


def test_codes_of_tables_come_back(small_model: Path, tmp_path: Path) -> None:
    mode = make_mode({"mode": "q8_table", "table": "basic", "store": "q4_t"})
    quantize_model(small_model, tmp_path / "codes.gguf", mode)
    there_and_back(tmp_path / "codes.gguf", tmp_path)


@given(
    data=st.binary(max_size=3000), repeat=st.integers(1, 50), content=st.sampled_from(["codes", "numbers"])
)
def test_any_bytes_come_back(data: bytes, repeat: int, content: str) -> None:
    layout = kernel((Field(content, 1), Field(content, 2)))
    data = (data * repeat)[: len(data) * repeat // 3 * 3]
    assert _core.decode_frame(layout, _core.encode_frame(layout, data), len(data)) == data


@given(
    probability=st.floats(0.001, 0.999),
    n_symbols=st.integers(1, 60),
    n=st.integers(0, 20_000),
    seed=st.integers(0, 99),
)
def test_uneven_symbols_come_back(probability: float, n_symbols: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    symbols = np.minimum(rng.geometric(probability, n), n_symbols).astype(np.uint8).tobytes()
    layout = kernel(codes(1, 8))
    assert _core.decode_frame(layout, _core.encode_frame(layout, symbols), n) == symbols


@pytest.mark.parametrize("spread", [0.55, 0.7, 1, 1.5, 2, 3, 5, 10, 40])
@pytest.mark.parametrize("shape", ["normal", "laplace"])
def test_codes_take_what_their_entropy_says(shape: str, spread: float) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=FRAME_BYTES) if shape == "normal" else rng.laplace(scale=0.5**0.5, size=FRAME_BYTES)
    stored = np.clip(np.rint(spread * x), -127, 127).astype(np.int8)
    coded = _core.encode_frame(kernel(codes(1, 8)), stored.tobytes())
    least = entropy(np.bincount(stored.view(np.uint8)))
    assert 8 * len(coded) / len(stored) < 1.005 * least + 0.004  # a table and states: 500 bytes


@pytest.mark.ci
def test_equal_scales_cost_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    blocks = rng.binomial(255, 0.5, (64, 4096, 34)).astype(np.uint8)
    blocks[:, :, :2] = (0x34, 0x12)
    report = there_and_back(one_tensor(tmp_path / "m.gguf", Type.Q8_0, blocks.reshape(64, -1)), tmp_path)
    (numbers,) = [use for use in report.streams if use.content == "numbers"]
    assert numbers.n_bytes == 64 * 4096 * 2
    assert numbers.coded_bytes < 1000
    (stored,) = [use for use in report.streams if use.content == "codes"]
    least = entropy(np.bincount(blocks[:, :, 2:].ravel())) * stored.n_bytes / 8
    assert stored.entropy_bytes == pytest.approx(least)
    assert stored.coded_bytes < 1.02 * least
    assert report.output_bytes < 1.02 * least + 3000


def test_the_entropy_of_nibbles_is_counted_by_nibble() -> None:
    counts = np.zeros(256, np.uint64)
    counts[0x10] = 8
    assert entropy_bytes(Field("codes", 16, 4), counts) == pytest.approx(2)  # 16 symbols of a bit
    assert entropy_bytes(Field("codes", 16, 8), counts) == 0


@pytest.mark.parametrize("mode", ["q4_0", "q4_0_multizero", "q8_table"])
def test_another_reader_sees_the_same(mode: str, generated: Callable[[str], Path], tmp_path: Path) -> None:
    settings = {"q4_0_multizero": {"radius": 2}, "q8_table": {"table": "balanced"}}.get(mode, {})
    stock = tmp_path / "m.gguf"
    base = generated("f16, rows of 256, grouped queries")
    pyquant.quantize_model(base, stock, pyquant.make_mode({"mode": mode, **settings}))
    pack_model(stock, tmp_path / "m.pqz")
    assert read(tmp_path / "m.pqz") == stock.read_bytes()


def test_threads_change_nothing(generated: Callable[[str], Path], tmp_path: Path) -> None:
    model = Model(n_embd=256, n_ff=2048, n_layer=3).write(tmp_path / "m.gguf")
    for threads in (1, 2, 5):
        pack_model(model, tmp_path / f"{threads}.pqz", threads=threads)
    first = (tmp_path / "1.pqz").read_bytes()
    assert first == (tmp_path / "2.pqz").read_bytes() == (tmp_path / "5.pqz").read_bytes()


def test_a_type_without_a_layout_is_bytes(small_model: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delitem(LAYOUTS, Type.F32)
    there_and_back(small_model, tmp_path)


def test_layouts_come_from_the_file(small_model: Path, tmp_path: Path, monkeypatch) -> None:
    pack_model(small_model, tmp_path / "m.pqz")
    monkeypatch.setitem(LAYOUTS, Type.F32, TEXT)
    unpack_model(tmp_path / "m.pqz", tmp_path / "m.gguf")
    assert (tmp_path / "m.gguf").read_bytes() == small_model.read_bytes()


def test_it_says_what_is_in_it(generated: Callable[[str], Path], tmp_path: Path) -> None:
    stock = generated("f16, experts")
    report = pack_model(stock, tmp_path / "m.pqz")
    one, other = ModelFile(stock), ModelFile(tmp_path / "m.pqz")
    assert [(t.name, t.type, t.shape, t.offset, t.n_bytes) for t in one.tensors] == [
        (t.name, t.type, t.shape, t.offset, t.n_bytes) for t in other.tensors
    ]
    assert one.keys == other.keys
    assert other.n_bytes == report.output_bytes < one.n_bytes
    told, packed = pyquant.model_info(stock), pyquant.model_info(tmp_path / "m.pqz")
    assert told.metadata == packed.metadata
    assert packed.bits_per_weight == report.bits_per_weight == 8 * report.output_bytes / told.n_weights
    assert packed.pqz["gguf_bytes"] == one.n_bytes
    assert {"pyquant", "zstd", "ggml"} <= packed.pqz["tools"].keys()
    json.dumps(report.to_json())


def test_commands_see_what_they_see_in_the_gguf(generated: Callable[[str], Path], tmp_path: Path) -> None:
    base = generated("f16, rows of 256, grouped queries")
    stock, packed = tmp_path / "q8_0.gguf", tmp_path / "q8_0.pqz"
    pyquant.quantize_model(base, stock, pyquant.make_mode({"mode": "q8_0"}))
    pack_model(stock, packed)

    def without_names(report) -> str:
        told = json.loads(json.dumps(report.to_json(), default=str).replace("q8_0.pqz", "q8_0.gguf"))
        for candidate in told.get("candidates", []):
            del candidate["bits"], candidate["size"]  # of the file, which is why there is another one
        return json.dumps({key: value for key, value in told.items() if "second" not in key})

    text = tmp_path / "text.txt"
    text.write_text("the theory of the animal in the air and the other " * 40)
    looks = [
        lambda model: pyquant.count_codes(model),
        lambda model: pyquant.measure_error(base, model),
        lambda model: pyquant.measure_error(model, model),
        lambda model: pyquant.measure_perplexity(model, text, n_ctx=64, threads=1),
        lambda model: pyquant.compare_models(base, [model], text, n_ctx=64, threads=1),
    ]
    for look in looks:
        assert without_names(look(packed)) == without_names(look(stock))
    assert pyquant.measure_speed([packed], n_prompt=8, n_generate=2, rounds=1).models
    again, direct = tmp_path / "again.gguf", tmp_path / "direct.gguf"
    mode = pyquant.make_mode({"mode": "ggml:Q4_K"})
    pack_model(base, tmp_path / "base.pqz")
    pyquant.quantize_model(tmp_path / "base.pqz", again, mode)
    pyquant.quantize_model(base, direct, mode)
    assert again.read_bytes() == direct.read_bytes()


def test_one_tensor_by_itself(generated: Callable[[str], Path], tmp_path: Path) -> None:
    stock = generated("bf16, tied, rows of 64 and 172")
    pack_model(stock, tmp_path / "m.pqz")
    packed, data = PqzFile(tmp_path / "m.pqz"), stock.read_bytes()
    for tensor in ModelFile(stock).tensors:
        with (tmp_path / "tensor").open("w+b") as file:
            packed.expand_tensor(tensor.name, file.fileno(), 1)
            assert file.read() == data[tensor.offset : tensor.offset + tensor.n_bytes] == tensor.data()
    for one, other in zip(ModelFile(stock).tensors, ModelFile(tmp_path / "m.pqz").tensors):
        assert one.data() == other.data()


def test_shards_are_packed_one_by_one(tmp_path: Path) -> None:
    first = Model(n_layer=2).write(tmp_path / "s.gguf", tensors_per_shard=8)
    whole = ModelFile(first)
    for path in whole.paths:
        pack_model(path, path.with_suffix(".pqz"))
    packed = ModelFile(first.with_suffix(".pqz"))
    assert len(packed.paths) == len(whole.paths) > 1
    assert pyquant.measure_error(whole, packed).identical
    with pytest.raises(ModelFileError, match="packed in shards"), as_gguf(packed):
        pass
    for path in whole.paths:
        unpack_model(path.with_suffix(".pqz"), tmp_path / "back.gguf", force=True)
        assert (tmp_path / "back.gguf").read_bytes() == path.read_bytes()


def test_what_is_packed_is_not_packed_again(small_model: Path, tmp_path: Path) -> None:
    pack_model(small_model, tmp_path / "m.pqz")
    with pytest.raises(ModelFileError, match="already a pqz file"):
        pack_model(tmp_path / "m.pqz", tmp_path / "n.pqz")
    with pytest.raises(ModelFileError, match="not a pqz file"):
        unpack_model(small_model, tmp_path / "m.gguf")
    with pytest.raises(OutputError, match="exists; --force"):
        pack_model(small_model, tmp_path / "m.pqz")
    with pytest.raises(OutputError, match="is the input"):
        unpack_model(tmp_path / "m.pqz", tmp_path / "m.pqz", force=True)
