"""`pyquant error`: every statistic against numpy on what gguf-py decodes, and what it says of files."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader
from gguf.quants import dequantize
from scipy.stats import entropy as scipy_entropy
from typer.testing import CliRunner

from pyquant import _core
from pyquant.cli import app
from pyquant.errors import OutputError
from pyquant.inspect.error_map import ErrorMap, measure_error
from pyquant.inspect.figures.codes import histogram_figure
from pyquant.inspect.figures.error_map import error_figure
from pyquant.inspect.figures.style import save_figure
from pyquant.inspect.histogram import count_codes
from pyquant.inspect.tensor_error import Sums, TensorError
from pyquant.models.difference import ModelDifference
from pyquant.models.model_file import ModelFile
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.models import F32
from tests.twins import kernels as reference

GROUPED = "f16, rows of 256, grouped queries"
EXPERTS = "f16, experts"
MODES = ["q4_0", "q8_0", "ggml:IQ4_NL", "ggml:Q4_K", "ggml:Q6_K", "ggml:Q5_0", "ggml:BF16"]


@pytest.fixture
def quantized(generated: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """Quantizes a generated model: (its name, mode, parameters)."""

    def make(name: str, mode: str, **parameters: Any) -> Path:
        output = tmp_path / f"{mode.replace(':', '-')}.gguf"
        quantize_model(generated(name), output, make_mode({"mode": mode, **parameters}))
        return output

    return make


def decoded(path: Path) -> dict[str, np.ndarray]:
    """Float32 weights by name, as gguf-py decodes them."""
    return {t.name: dequantize(t.data, t.tensor_type).astype(np.float32) for t in GGUFReader(path).tensors}


def write_imatrix(path: Path, model: Path, leave_out: str = "token_embd.weight") -> dict[str, np.ndarray]:
    """A legacy importance matrix of a model's matrices; what it says, (n_experts, n_per_row)."""
    rng = np.random.default_rng(3)
    weights = {
        tensor.name: rng.exponential(
            size=(tensor.shape[2] if len(tensor.shape) > 2 else 1, tensor.n_per_row)
        ).astype(np.float32)
        for tensor in ModelFile(model).tensors
        if len(tensor.shape) > 1 and tensor.name != leave_out
    }
    data = struct.pack("<i", len(weights))
    for name, values in weights.items():
        data += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", 1, values.size)
        data += values.tobytes()
    path.write_bytes(data)
    return weights


def decibel(signal: float, noise: float) -> Any:
    return pytest.approx(10 * math.log10(signal / noise), abs=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [GROUPED, EXPERTS])
def test_statistics_equal_numpy(
    generated: Callable[[str], Path], quantized: Callable[..., Path], name: str, mode: str
) -> None:
    base, model = generated(name), quantized(name, mode)
    before, after = decoded(base), decoded(model)
    found = measure_error(base, model).to_json()
    assert [tensor["name"] for tensor in found["tensors"]] == [t.name for t in ModelFile(base).tensors]
    types = {tensor.name: tensor.tensor_type.name for tensor in GGUFReader(model).tensors}
    for tensor in found["tensors"]:
        x, y = (file[tensor["name"]].astype(np.float64) for file in (before, after))
        assert tensor["type"] == types[tensor["name"]]
        assert tensor["shape"] == list(x.shape[::-1])
        assert tensor["n_weights"] == x.size
        assert tensor["zero_share"] == np.mean(y == 0)
        assert tensor["identical"] == np.array_equal(x, y)
        assert tensor["rmse"] == pytest.approx(np.sqrt(np.mean((x - y) ** 2)), rel=1e-6)
        assert tensor["cosine"] == pytest.approx(
            (x * y).sum() / np.sqrt((x**2).sum() * (y**2).sum()), abs=1e-9
        )
        assert tensor["weighted_rmse"] is tensor["weighted_snr_db"] is None
        if tensor["identical"]:
            assert tensor["rmse"] == tensor["largest_error"] == 0
            assert tensor["snr_db"] is tensor["largest_error_at"] is None
            continue
        assert tensor["snr_db"] == decibel((x**2).sum(), ((x - y) ** 2).sum())
        difference = np.abs(before[tensor["name"]] - after[tensor["name"]])
        assert tensor["largest_error"] == difference.max()
        at = np.unravel_index(difference.argmax(), x.shape)
        assert tensor["largest_error_at"] == [int(i) for i in at[::-1]]
    different = [tensor["name"] for tensor in found["tensors"] if not tensor["identical"]]
    assert all(
        name.endswith("norm.weight") or "ffn_gate_inp" in name for name in set(before) - set(different)
    )
    x, y = (np.concatenate([file[name].ravel() for name in before]).astype(float) for file in (before, after))
    assert found["total"]["rmse"] == pytest.approx(np.sqrt(np.mean((x - y) ** 2)), rel=1e-6)
    assert found["total"]["snr_db"] == decibel((x**2).sum(), ((x - y) ** 2).sum())
    assert found["total"]["n_weights"] == x.size
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("mode", "parameters"),
    [("q4_0", {}), ("q4_0_multizero", {"radius": 1}), ("ggml:IQ4_NL", {}), ("q8_0", {}),
     ("q8_table", {"table": "basic"})],
)  # fmt: skip
def test_entropy_of_the_codes(
    generated: Callable[[str], Path], quantized: Callable[..., Path], mode: str, parameters: dict[str, Any]
) -> None:
    model = quantized(GROUPED, mode, pure=True, **parameters)
    found = {t.name: t for t in measure_error(generated(GROUPED), model).tensors}
    counted = 0
    for tensor in GGUFReader(model).tensors:
        if tensor.tensor_type is Type.F32:
            assert found[tensor.name].entropy is None
            continue
        blocks = tensor.data.reshape(-1, 34 if tensor.tensor_type is Type.Q8_0 else 18)
        codes = blocks[:, 2:] if tensor.tensor_type is Type.Q8_0 else reference.nibbles(blocks)
        expected = scipy_entropy(np.unique(codes, return_counts=True)[1], base=2)
        assert found[tensor.name].entropy == pytest.approx(expected, abs=1e-12)
        counted += 1
    assert counted == 16


@pytest.mark.parametrize("name", [GROUPED, EXPERTS])
def test_weighted_errors_equal_numpy(
    generated: Callable[[str], Path], quantized: Callable[..., Path], tmp_path: Path, name: str
) -> None:
    base, model = generated(name), quantized(name, "ggml:Q4_K")
    weights = write_imatrix(tmp_path / "m.imatrix", base)
    before, after = decoded(base), decoded(model)
    found = measure_error(base, model, imatrix=tmp_path / "m.imatrix")
    signal = noise = 0.0
    for tensor in (t.to_json() for t in found.tensors):
        if tensor["name"] not in weights:
            assert tensor["weighted_rmse"] is tensor["weighted_snr_db"] is None
            continue
        x, y = (file[tensor["name"]].astype(np.float64) for file in (before, after))
        w = np.broadcast_to(weights[tensor["name"]][:, None], x.reshape(-1, *x.shape[-2:]).shape).reshape(
            x.shape
        )
        assert tensor["weighted_rmse"] == pytest.approx(
            np.sqrt(np.average((x - y) ** 2, weights=w)), rel=1e-6
        )
        signal, noise = signal + (w * x**2).sum(), noise + (w * (x - y) ** 2).sum()
        if not tensor["identical"]:
            assert tensor["weighted_snr_db"] == decibel((w * x**2).sum(), (w * (x - y) ** 2).sum())
            assert tensor["weighted_snr_db"] != pytest.approx(tensor["snr_db"], abs=1e-4)
    assert found.total.weighted_snr_db == decibel(signal, noise)


def compare(x: np.ndarray, y: np.ndarray, **work: Any) -> dict[str, float]:
    """All sums of one pass over float32 arrays (n_rows, n_per_row) in files."""
    files = [os.memfd_create("x"), os.memfd_create("y")]
    try:
        for file, data in zip(files, (b"odd" + x.tobytes(), y.tobytes())):
            os.pwrite(file, data, 0)
        decoder = _core.ggml_decoder(int(Type.F32))
        result = _core.compare(
            base_file=files[0], base_offset=3, base=decoder, file=files[1], offset=0, decoder=decoder,
            n_rows=x.shape[0], n_per_row=x.shape[1], **work,
        )  # fmt: skip
    finally:
        for file in files:
            os.close(file)
    names = [*reference.error(x[:1], y[:1]), *reference.weighted_error(x[:1], y[:1], x[0])]
    return {name: getattr(result, name) for name in names}


@pytest.mark.parametrize("n_per_row", [1, 31, 500, 9001])
@pytest.mark.parametrize("n_experts", [1, 3])
def test_sums_equal_their_twins_whatever_the_number_of_threads(n_per_row: int, n_experts: int) -> None:
    rng = np.random.default_rng(n_per_row)
    n_rows = n_experts * (1_500_000 // n_experts // n_per_row)  # more than one chunk of 1 MiB
    x = rng.laplace(size=(n_rows, n_per_row)).astype(np.float32)
    y = np.where(rng.random(x.shape) < 0.1, 0, x + rng.normal(size=x.shape) / 50).astype(np.float32)
    y[n_rows // 2, -1] = y[-1, 0] = 1e4
    x[n_rows // 2, -1] = x[-1, 0] = 0  # of two equal largest errors the first is named
    importance = rng.exponential(size=(n_experts, n_per_row)).astype(np.float32)
    found = compare(x, y, importance=importance)
    expected = reference.error(x, y)
    for rows, w in zip(np.split(np.arange(n_rows), n_experts), importance):
        for key, value in reference.weighted_error(x[rows], y[rows], w).items():
            expected[key] = expected.get(key, 0) + value
    assert found == pytest.approx(expected, rel=1e-11)
    for key in ("largest_error", "largest_error_at", "zeros"):
        assert found[key] == expected[key]
    for n_threads in (2, 3, 64):
        assert compare(x, y, importance=importance, n_threads=n_threads) == found


def test_threads_give_one_result(generated: Callable[[str], Path], quantized: Callable[..., Path]) -> None:
    base, model = generated(GROUPED), quantized(GROUPED, "q4_0")
    one, many = (measure_error(base, model, threads=n).to_json() for n in (1, 5))
    assert one == many


def test_progress_counts_the_bytes_of_both(
    generated: Callable[[str], Path], quantized: Callable[..., Path]
) -> None:
    base, model = generated(GROUPED), quantized(GROUPED, "q4_0")
    calls: list[tuple[int, int, str]] = []
    measure_error(base, model, progress=lambda *call: calls.append(call))
    total = sum(tensor.n_bytes for file in (base, model) for tensor in ModelFile(file).tensors)
    assert {call[1] for call in calls} == {total}
    assert [call[0] for call in calls] == sorted(call[0] for call in calls)
    assert calls[-1] == (total, total, "blk.1.ffn_up.weight")


def test_a_file_is_identical_to_itself(generated: Callable[[str], Path]) -> None:
    found = measure_error(generated(EXPERTS), generated(EXPERTS)).to_json()
    assert found["identical"] is True
    assert found["metadata"] == found["not_compared"] == {}
    assert found["only_in_base"] == found["only_in_model"] == []
    for tensor in found["tensors"]:
        assert tensor["identical"] is True
        assert (tensor["rmse"], tensor["cosine"], tensor["largest_error"]) == (0, 1, 0)
        assert tensor["snr_db"] is tensor["largest_error_at"] is None


def test_the_same_weights_in_another_type(generated: Callable[[str], Path], tmp_path: Path) -> None:
    wider = tmp_path / "f32.gguf"
    quantize_model(generated(GROUPED), wider, make_mode({"mode": "ggml:F32"}))
    found = measure_error(generated(GROUPED), wider)
    assert all(tensor.identical for tensor in found.tensors)
    assert not found.identical
    assert found.difference.metadata["general.file_type"] == ("1", "0")


def test_quantized_models_are_compared_with_each_other(quantized: Callable[..., Path]) -> None:
    a, b = quantized(GROUPED, "ggml:Q4_K"), quantized(GROUPED, "ggml:Q5_K")
    there, back = measure_error(a, b).total, measure_error(b, a).total
    assert there.squared_error == back.squared_error > 0
    assert there.squared_weight == back.squared_value


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_data_give_the_same_figure(
    generated: Callable[[str], Path], quantized: Callable[..., Path], tmp_path: Path, suffix: str
) -> None:
    base, model = generated(GROUPED), quantized(GROUPED, "ggml:Q4_K")
    write_imatrix(tmp_path / "m.imatrix", base)
    paths = [tmp_path / f"{n}.{suffix}" for n in range(2)]
    for path in paths:
        save_figure(error_figure(measure_error(base, model, imatrix=tmp_path / "m.imatrix")), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_the_map_shows_every_tensor_that_differs(
    generated: Callable[[str], Path], quantized: Callable[..., Path]
) -> None:
    found = measure_error(generated(GROUPED), quantized(GROUPED, "ggml:Q4_K"))
    axes = error_figure(found).axes[0]
    texts = [text.get_text() for text in axes.texts]
    assert sorted(texts) == sorted(f"{t.sums.snr_db:.1f}" for t in found.tensors if not t.identical)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert "attn_q  Q4_K" in labels
    assert labels[-2:] == ["output  Q6_K", "token_embd  Q4_K"]
    assert axes.get_xlabel() == "identical everywhere: output_norm, attn_norm, ffn_norm"


def test_every_tensor_has_a_place_in_the_map_whatever_its_name() -> None:
    names = ["blk.4000000000.x", "blk.4000000000.x.weight", f"blk.{10**22}.x", "output", "output.weight"]
    sums = Sums(n_weights=32, squared_error=1, squared_weight=100)
    tensors = [TensorError(name, "F32", "Q4_0", (32,), sums, 1.0, [0], None) for name in names]
    axes = error_figure(ErrorMap("a", "b", None, tensors, ModelDifference([], [], {}, {}))).axes[0]
    assert len({text.get_position() for text in axes.texts}) == len(names)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["4000000000", str(10**22)]
    labels = [label.get_text().split()[0] for label in axes.get_yticklabels()]
    assert labels == ["x", "x", "output", "output"]


def test_a_map_of_identical_models(generated: Callable[[str], Path]) -> None:
    found = measure_error(generated(GROUPED), generated(GROUPED))
    texts = [text.get_text() for text in error_figure(found).axes[0].texts]
    assert texts == ["="] * len(found.tensors)


@pytest.mark.parametrize("name", [b"a $\\frac $.gguf", b"a \xff.gguf"])
def test_any_name_is_drawn(generated: Callable[[str], Path], tmp_path: Path, name: bytes) -> None:
    model = shutil.copy(generated(F32), tmp_path / os.fsdecode(name))
    save_figure(error_figure(measure_error(model, model)), tmp_path / "map.png")
    counted = count_codes(model, make_mode({"mode": "q4_0"}), threads=1)
    save_figure(histogram_figure(counted), tmp_path / "codes.png")


def test_a_result_is_shown_though_its_figure_cannot_be_drawn(
    generated: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(*_: object) -> None:
        raise OutputError("no figure")

    monkeypatch.setattr("pyquant.inspect.figures.style.save_figure", fails)
    words = ["error", generated(F32), generated(F32), "--plot", tmp_path / "map.svg"]
    result = CliRunner().invoke(app, list(map(str, words)))
    assert isinstance(result.exception, OutputError)
    assert result.stdout == "identical        all 21 tensors, and the metadata\n"


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["error", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_command(generated: Callable[[str], Path], quantized: Callable[..., Path], tmp_path: Path) -> None:
    base, model, figure = generated(GROUPED), quantized(GROUPED, "q4_0"), tmp_path / "map.svg"
    assert json.loads(run(base, model, "--json")) == measure_error(base, model).to_json()
    text = run(base, model, "--plot", figure)
    assert figure.read_text().startswith("<?xml")
    assert "blk.1.ffn_up.weight" in text
    assert "blk.1.ffn_norm.weight" not in text
    assert "F16 -> Q4_0" in text
    assert "metadata         pyquant.mode: none -> 'q4_0'" in text
    assert run(base, base) == "identical        all 21 tensors, and the metadata\n"
    with pytest.raises(OutputError, match="exists"):
        run(base, model, "--plot", figure)
