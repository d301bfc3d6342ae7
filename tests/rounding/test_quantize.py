"""Whole files against stock llama-quantize, and what a quantization says and refuses."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader, GGUFWriter

from pyquant.models.model_file import ModelFile
from pyquant.rounding.make_plan import q8_0_codes
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.fold_table import balanced, basic
from pyquant.schemes.q8_table import q8_table
from pyquant.schemes.settings import make_mode
from tests.support.gguf_file import finish
from tests.support.models import IN_THE_BOX, MODELS, Model
from tests.support.oracle import Oracle
from tests.twins import kernels as reference

NEIGHBORS = ["Q4_K_M", "Q4_K_S", "Q6_K", "IQ4_NL", "IQ4_XS", "Q5_0", "Q4_1", "Q3_K_L", "Q2_K", "F16", "BF16"]
every_model = pytest.mark.parametrize("source", [*MODELS, IN_THE_BOX], indirect=True)


@pytest.fixture
def source_and_imatrix(source: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A model, and an importance matrix for it with random activations."""
    rng = np.random.default_rng(5)
    writer = GGUFWriter(tmp_path / "imatrix.gguf", "")
    writer.kv_data[0].clear()
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", ["made.txt"])
    writer.add_uint32("imatrix.chunk_count", 7)
    writer.add_uint32("imatrix.chunk_size", 256)
    for tensor in ModelFile(source).tensors:
        if tensor.name.startswith("blk.") and len(tensor.shape) > 1:
            n_experts = tensor.shape[2] if len(tensor.shape) > 2 else 1
            sums = rng.exponential(size=(n_experts, tensor.n_per_row)).astype(np.float32)
            counts = np.arange(n_experts, dtype=np.float32)[:, None] + (n_experts == 1)  # one expert unseen
            writer.add_tensor(f"{tensor.name}.in_sum2", sums * counts)
            writer.add_tensor(f"{tensor.name}.counts", counts)
    finish(writer)
    return source, tmp_path / "imatrix.gguf"


def metadata(path: Path) -> dict:
    fields = GGUFReader(path).fields.items()
    return {key: field.contents() for key, field in fields if not key.startswith("GGUF.")}


def assert_same_tensors(ours: Path, theirs: Path) -> None:
    """Names in order, shapes, types and every byte of data."""
    for got, expected in zip(GGUFReader(ours).tensors, GGUFReader(theirs).tensors, strict=True):
        assert got.name == expected.name
        assert got.shape.tolist() == expected.shape.tolist(), got.name
        assert got.tensor_type == expected.tensor_type, got.name
        different = np.count_nonzero(got.data.view(np.uint8) != expected.data.view(np.uint8))
        assert not different, (
            f"{got.name}: {different} of {got.n_bytes} bytes of {got.tensor_type.name} differ"
        )


@pytest.mark.oracle
@every_model
@pytest.mark.parametrize("pure", [False, True], ids=["mixed", "pure"])
@pytest.mark.parametrize("name", ["q4_0", "q8_0"])
def test_stock_schemes(oracle: Oracle, source: Path, name: str, pure: bool, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
    quantize_model(source, ours, make_mode({"mode": name, "pure": pure}))
    oracle.quantize(source, theirs, name.upper(), *["--pure"] * pure)
    assert_same_tensors(ours, theirs)
    expected = metadata(theirs)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert metadata(ours) == {**expected, "pyquant.mode": name, "pyquant.source.sha256": digest}


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("source", "kind"),
    [
        *((name, kind) for name in MODELS for kind in NEIGHBORS),
        *((IN_THE_BOX, kind) for kind in ["Q4_K_M", "Q6_K"]),
        *(
            pytest.param(IN_THE_BOX, kind, marks=pytest.mark.slow)
            for kind in NEIGHBORS
            if kind not in ("Q4_K_M", "Q6_K")
        ),
    ],
    indirect=["source"],
)
def test_types_of_ggml_give_the_same_file(oracle: Oracle, source: Path, kind: str, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
    quantize_model(source, ours, make_mode({"mode": f"ggml:{kind}"}))
    oracle.quantize(source, theirs, kind)
    assert_same_tensors(ours, theirs)
    assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.oracle
@pytest.mark.parametrize("source", ["f16, experts"], indirect=True)
@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "Q4_K_M", "IQ4_NL", "IQ4_XS", "Q2_K_S", "IQ2_XXS", "IQ3_S"])
def test_an_importance_matrix(
    oracle: Oracle, source_and_imatrix: tuple[Path, Path], kind: str, tmp_path: Path
) -> None:
    source, imatrix = source_and_imatrix
    ours, theirs = tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
    quantize_model(source, ours, make_mode({"mode": f"ggml:{kind}", "imatrix": imatrix}))
    oracle.quantize(source, theirs, kind, "--imatrix", imatrix)
    assert_same_tensors(ours, theirs)
    assert metadata(ours) == metadata(theirs)
    plain = tmp_path / "plain.gguf"
    if kind in ("Q4_0", "Q4_K_M", "IQ4_NL"):
        quantize_model(source, plain, make_mode({"mode": f"ggml:{kind}"}))
        with pytest.raises(AssertionError, match="bytes of"):
            assert_same_tensors(plain, ours)


@pytest.mark.oracle
@pytest.mark.parametrize("source", ["f16, experts"], indirect=True)
def test_stock_q4_0_with_an_importance_matrix(
    oracle: Oracle, source_and_imatrix: tuple[Path, Path], tmp_path: Path
) -> None:
    source, imatrix = source_and_imatrix
    ours, theirs = tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
    quantize_model(source, ours, make_mode({"mode": "q4_0", "imatrix": imatrix}))
    oracle.quantize(source, theirs, "Q4_0", "--imatrix", imatrix)
    assert_same_tensors(ours, theirs)


@pytest.mark.oracle
@pytest.mark.parametrize("kind", ["Q4_0", "Q4_K_M"])
def test_shards_give_the_file_that_the_whole_gives(oracle: Oracle, kind: str, tmp_path: Path) -> None:
    model = Model(seed=9)
    whole = model.write(tmp_path / "whole.gguf")
    first = model.write(tmp_path / "split.gguf", tensors_per_shard=5)
    assert len(ModelFile(first).paths) == 5
    ours, from_whole, theirs = (tmp_path / name for name in ("ours.gguf", "from_whole.gguf", "theirs.gguf"))
    quantize_model(first, ours, make_mode({"mode": f"ggml:{kind}"}))
    quantize_model(whole, from_whole, make_mode({"mode": f"ggml:{kind}"}))
    oracle.quantize(whole, theirs, kind)
    assert ours.read_bytes() == from_whole.read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_data_that_is_laid_out_otherwise(alignment: int, tmp_path: Path) -> None:
    for name, chosen in {"plain": None, "other": alignment}.items():
        source = Model(alignment=chosen).write(tmp_path / f"{name}-f32.gguf")
        quantize_model(source, tmp_path / f"{name}.gguf", make_mode({"mode": "ggml:Q4_K"}))
    assert (tmp_path / "other.gguf").read_bytes() == (tmp_path / "plain.gguf").read_bytes()


def stored(path: Path) -> dict[str, np.ndarray]:
    return {tensor.name: tensor.data for tensor in GGUFReader(path).tensors if tensor.data.ndim > 1}


@every_model
def test_multizero_is_a_fold_of_q4_0(source: Path, tmp_path: Path) -> None:
    quantize_model(source, tmp_path / "stock.gguf", make_mode({"mode": "q4_0"}))
    quantize_model(source, tmp_path / "folded.gguf", make_mode({"mode": "q4_0_multizero", "radius": 2}))
    stock, folded = stored(tmp_path / "stock.gguf"), GGUFReader(tmp_path / "folded.gguf").tensors
    n_folded = 0
    for tensor in folded:
        if tensor.tensor_type != Type.Q4_0:
            continue
        n_folded += 1
        scales, values = reference.load_q4_0(stock[tensor.name].reshape(-1, 18))
        expected = reference.store_q4_0(scales, np.where(np.abs(values) <= 2, 0, values).astype(np.int8))
        assert np.array_equal(tensor.data.reshape(-1, 18), expected)
    assert n_folded
    assert metadata(tmp_path / "folded.gguf")["pyquant.radius"] == 2


@pytest.mark.parametrize("source", MODELS, indirect=True)
@pytest.mark.parametrize("table", ["basic", "balanced"])
def test_a_table_folds_q8_0(source: Path, table: str, tmp_path: Path) -> None:
    quantize_model(source, tmp_path / "stock.gguf", make_mode({"mode": "q8_0"}))
    quantize_model(source, tmp_path / "folded.gguf", make_mode({"mode": "q8_table", "table": table}))
    stock = stored(tmp_path / "stock.gguf")
    model = ModelFile(source)
    chosen = {t.name for t in GGUFReader(tmp_path / "folded.gguf").tensors if t.tensor_type == Type.Q8_0}
    counts = q8_0_codes(model, [t for t in model.tensors if t.name in chosen])
    expected = {"basic": basic(), "balanced": balanced(counts)}[table]
    blocks = np.concatenate([stock[name].reshape(-1, 34) for name in chosen])
    assert np.array_equal(counts, reference.code_counts(blocks[:, 2:], 256))
    for name, data in stored(tmp_path / "folded.gguf").items():
        if name in chosen:
            scales, codes = reference.load_q8_0(stock[name].reshape(-1, 34))
            folded = reference.store_q8_0(scales, reference.fold(q8_table(expected), codes))
            assert np.array_equal(data.reshape(-1, 34), folded)
    keys = metadata(tmp_path / "folded.gguf")
    assert keys["pyquant.table.name"] == table
    assert [int(v) for v in keys["pyquant.table.values"].split()] == expected.values.tolist()


@pytest.mark.parametrize("source", MODELS, indirect=True)
@pytest.mark.parametrize("name", ["q4_0", "q8_0", "ggml:Q4_K_M", "ggml:F16"])
def test_a_dry_run_foretells_sizes_and_types(source: Path, name: str, tmp_path: Path) -> None:
    mode = make_mode({"mode": name})
    foretold = quantize_model(source, tmp_path / "out.gguf", mode, dry_run=True)
    assert not list(tmp_path.iterdir())
    report = quantize_model(source, tmp_path / "out.gguf", mode)
    assert foretold.output_bytes == report.output_bytes == (tmp_path / "out.gguf").stat().st_size
    written = {t.name: (t.tensor_type.name, t.n_bytes) for t in GGUFReader(tmp_path / "out.gguf").tensors}
    for told in (foretold, report):
        assert {t.name: (t.type, t.n_bytes) for t in told.tensors} == written
        assert told.bits_per_weight == 8 * report.output_bytes / report.n_weights


def test_what_the_report_says_of_errors(generated, tmp_path: Path) -> None:
    source = generated("bf16, tied, rows of 64 and 172")
    report = quantize_model(source, tmp_path / "out.gguf", make_mode({"mode": "q4_0_multizero", "radius": 1}))
    before = Model.tensors(MODELS["bf16, tied, rows of 64 and 172"])
    after = {t.name: t for t in GGUFReader(tmp_path / "out.gguf").tensors}
    n_weights, sums = 0, Counter()
    for tensor in report.tensors:
        if not tensor.quantized:
            continue
        x = (
            before[tensor.name].view(np.uint32) + 0x7FFF + (before[tensor.name].view(np.uint32) >> 16 & 1)
        ) >> 16
        weights = (x << 16).astype(np.uint32).view(np.float32)
        type_, packed = Type[tensor.type], after[tensor.name].data
        is_f16 = type_ == Type.F16  # no block divides rows of 172
        decoded = packed.astype(np.float32) if is_f16 else reference.decode(type_, packed)
        expected = reference.error(weights, decoded)
        assert tensor.squared_error == pytest.approx(expected["squared_error"], rel=1e-12)
        assert tensor.squared_weight == pytest.approx(expected["squared_weight"], rel=1e-12)
        assert tensor.zeros == expected["zeros"]
        n_weights += weights.size
        sums.update(expected)
    said = report.to_json()
    assert n_weights < report.n_weights  # norms are copied, and do not count
    # Sums of other orders differ in their last bits.
    assert said["rmse"] == pytest.approx((sums["squared_error"] / n_weights) ** 0.5, rel=1e-9)
    snr = 10 * math.log10(sums["squared_weight"] / sums["squared_error"])
    assert said["snr_db"] == pytest.approx(snr, rel=1e-9)
    assert said["zero_share"] == pytest.approx(sums["zeros"] / n_weights, rel=1e-9)


def test_only_tensors_that_are_named(generated, tmp_path: Path) -> None:
    source = generated("f32, rows of 64 and 96")
    mode = make_mode({"mode": "q4_0", "tensors": r"ffn_(up|down)\.weight$"})
    report = quantize_model(source, tmp_path / "out.gguf", mode)
    for tensor in report.tensors:
        assert (tensor.type == "Q4_0") == ("ffn_up" in tensor.name or "ffn_down" in tensor.name)
    before, after = stored(source), stored(tmp_path / "out.gguf")
    for name in before:
        assert "ffn" in name or np.array_equal(before[name], after[name])


def test_threads_and_runs_give_the_same_file(generated, tmp_path: Path) -> None:
    source = generated("f16, experts")
    files = []
    for threads in (1, 3):
        path = tmp_path / f"{threads}.gguf"
        quantize_model(source, path, make_mode({"mode": "q4_0"}), threads=threads)
        files.append(path.read_bytes())
    assert files[0] == files[1]
