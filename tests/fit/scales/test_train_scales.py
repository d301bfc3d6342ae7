"""Trained scales: slopes against differences, what is written, and that a run which was killed goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES
from numpy.typing import NDArray

from pyquant import _core, make_mode, quantize_model
from pyquant.calibration.gradients.scaled_graph import ScaledGraph
from pyquant.errors import ConfigError
from pyquant.fit.scales import training
from pyquant.fit.scales.train_scales import train_scales
from pyquant.models.block_scales import SCALES, times_rows
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.metadata import most_trained_bytes
from tests.support.models import Model
from tests.support.other_models import bert

MODEL = Model(n_embd=64, n_ff=96, n_layer=2, n_head=4, n_head_kv=2, seed=7)
TOKENS = np.random.default_rng(1).integers(3, 200, (6, 24)).astype(np.int32)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MODEL.write(tmp_path_factory.mktemp("model") / "model.gguf")


@pytest.fixture(scope="module")
def quantized(base: Path) -> Path:
    output = base.with_name("q4_0.gguf")
    quantize_model(base, output, make_mode({"mode": "ggml:Q4_0"}))
    return output


def trained(base: Path, quantized: Path, output: Path, **options: object) -> list[Path]:
    return train_scales(ModelFile(base), ModelFile(quantized), output, TOKENS, threads=1, **options)


def kld(graph: ScaledGraph, wanted: NDArray[np.float32]) -> float:
    logs = []
    for logits in (wanted, graph.logits(graph.streams(TOKENS[0])[-1])):
        x = logits.astype(np.float64)
        x -= x.max(axis=1, keepdims=True)
        logs.append(x - np.log(np.exp(x).sum(axis=1, keepdims=True)))
    return float((np.exp(logs[0]) * (logs[0] - logs[1])).sum())


@pytest.mark.parametrize(
    "name",
    ["blk.0.attn_q.weight", "blk.1.attn_v.weight", "blk.0.attn_output.weight", "blk.1.ffn_gate.weight",
     "blk.0.ffn_down.weight", "blk.1.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"],
)  # fmt: skip
def test_slopes_are_those_of_differences(
    base: Path, quantized: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(_core, "HAS_BF16_PRODUCTS", False)
    graph, origin = (ScaledGraph(ModelFile(path), [name]) for path in (quantized, base))
    wanted = origin.logits(origin.streams(TOKENS[0])[-1])
    streams = graph.streams(TOKENS[0])
    gradients = graph.logits(streams[-1])
    training.towards(wanted.copy(), gradients)
    slopes = graph.slopes(streams, gradients)[name]
    for place in np.argsort(-np.abs(slopes))[:3]:
        sides = []
        for step in (0.01, -0.01):
            graph.logs[name][place] = step
            sides.append(kld(graph, wanted))
        graph.logs[name][place] = 0
        assert slopes[place] == pytest.approx((sides[0] - sides[1]) / 0.02, rel=0.02)


@pytest.mark.parametrize("type_", sorted(SCALES), ids=lambda type_: type_.name)
def test_rows_are_multiplied_by_their_scales(type_: Type, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (5, _core.row_bytes(int(type_), 512)), np.uint8)
    blocks = rows.reshape(5, 512 // GGML_QUANT_SIZES[type_][0], -1)
    for begin in SCALES[type_]:
        scales = rng.normal(size=(*blocks.shape[:2], 1)).astype(np.float16)
        blocks[:, :, begin : begin + 2] = scales.view(np.uint8)
    path = tmp_path / "rows"
    path.write_bytes(rows.tobytes())
    tensor = Tensor("rows", type_, (512, 5), path, 0, rows.nbytes)
    factors = np.exp(rng.normal(0, 0.05, 5)).astype(np.float32)
    decoder = tensor.decoder()
    before = decoder.decode(rows, n_per_row=512)
    after = decoder.decode(times_rows(tensor, factors), n_per_row=512)
    np.testing.assert_allclose(after, before * factors[:, None], atol=2**-10 * np.abs(before).max())


def test_the_file_has_its_codes_and_less_kld(base: Path, quantized: Path, tmp_path: Path) -> None:
    (output,) = trained(base, quantized, tmp_path / "trained.gguf")
    before, after = ModelFile(quantized), ModelFile(output)
    changed = []
    for old, new in zip(before.tensors, after.tensors, strict=True):
        assert (old.name, old.type, old.shape) == (new.name, new.type, new.shape)
        rows, others = old.stored_rows(), new.stored_rows()
        if not np.array_equal(rows, others):
            changed.append(old.name)
        if old.type == Type.Q4_0:
            codes = [x.reshape(len(x), -1, 18)[:, :, 2:] for x in (rows, others)]
            np.testing.assert_array_equal(*codes)
    assert changed == [t.name for t in before.tensors if t.name not in ("token_embd.weight", "output.weight")]
    assert after.get("pyquant.method") == "trained scales"
    assert after.n_bytes - before.n_bytes <= most_trained_bytes()
    of_base = ScaledGraph(ModelFile(base), [])
    wanted = of_base.logits(of_base.streams(TOKENS[0])[-1])
    assert kld(ScaledGraph(after, []), wanted) < kld(ScaledGraph(before, []), wanted)


def test_shards_are_those_of_the_model(base: Path, quantized: Path, tmp_path: Path) -> None:
    (whole,) = trained(base, quantized, tmp_path / "whole.gguf")
    mode = make_mode({"mode": "ggml:Q4_0"})
    done = quantize_model(base, tmp_path / "q.gguf", mode, split=60_000)
    paths = trained(base, Path(done.output), tmp_path / "split.gguf")
    assert len(paths) == len(done.files) > 1
    for one, other in zip(ModelFile(whole).tensors, ModelFile(paths[0]).tensors, strict=True):
        assert one.data() == other.data()


def test_a_run_that_was_stopped_goes_on(base: Path, quantized: Path, tmp_path: Path) -> None:
    (undisturbed,) = trained(base, quantized, tmp_path / "undisturbed.gguf")

    class Stopped(Exception):
        pass

    def stop(n_done: int, n_chunks: int) -> None:
        if n_done == 4:
            raise Stopped

    output, told = tmp_path / "stopped.gguf", list[int]()
    with pytest.raises(Stopped):
        trained(base, quantized, output, checkpoint_seconds=0, progress=stop)
    assert not output.exists()
    trained(base, quantized, output, progress=lambda n_done, n_chunks: told.append(n_done))
    assert told == [5, 6]
    assert output.read_bytes() == undisturbed.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stopped.gguf", "undisturbed.gguf"]


def test_models_without_known_gradients_are_refused(quantized: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="known for architectures"):
        trained(bert(tmp_path / "bert.gguf"), quantized, tmp_path / "out.gguf")
