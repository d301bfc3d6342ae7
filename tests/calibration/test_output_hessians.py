"""Gradients of what matrices give: against differences of the model in float64, and what is refused."""

from __future__ import annotations

import dataclasses
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.calibration import Calibration
from pyquant.calibration.gradients import output_hessians as module
from pyquant.calibration.gradients.kept_sums import KeptSums
from pyquant.calibration.gradients.llama_graph import (
    BIASED,
    MATRICES,
    LlamaGraph,
    n_given,
    narrow_outputs,
    output_side_bytes,
)
from pyquant.calibration.panels import full_matrix, triangle_of
from pyquant.errors import ConfigError
from pyquant.files.kept import not_used
from pyquant.llama.chunks import Chunks
from pyquant.llama.model import Model as Running
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_name import EMBEDDINGS
from tests.support.command import run
from tests.support.families import FAMILIES
from tests.support.llama_twin import inputs_of
from tests.support.models import Model

MODEL = Model(n_embd=64, n_ff=96, n_layer=2, n_head=4, n_head_kv=2, seed=7)
TOKENS = np.random.default_rng(1).integers(3, 200, 24).astype(np.int32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MODEL.write(tmp_path_factory.mktemp("model") / "model.gguf")


@pytest.fixture
def in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Round no products, for what is compared to be exact."""
    monkeypatch.setattr(_core, "HAS_BF16_PRODUCTS", False)


def loss(tensors: dict[str, NDArray[np.float64]], targets: NDArray[np.int64]) -> float:
    """The negative logarithm of all targets' probability, by the twin in float64."""
    names = ("n_layer", "n_embd", "n_head", "n_head_kv", "n_expert")
    twin = types.SimpleNamespace(**{name: getattr(MODEL, name) for name in names}, tensors=lambda: tensors)
    logits = inputs_of(twin, TOKENS)["output.weight"][0] @ tensors["output.weight"].T
    logits -= logits.max(axis=1, keepdims=True)
    return float((np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(logits)), targets]).sum())


def followed(
    graph: LlamaGraph, streams: list[NDArray[np.float32]], logits: NDArray[np.float32]
) -> dict[str, NDArray[np.float32]]:
    """Give the gradients of what matrices give, by name."""
    gradients: dict[str, NDArray[np.float32]] = {}
    graph.backwards(streams, logits, lambda name, its, given: gradients.__setitem__(name, its))
    return {name: gradients[name] for name in graph.names}


def gradients_of_targets(
    graph: LlamaGraph, rng: np.random.Generator
) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float32]]]:
    """Draw targets, and give them with the graph's gradients of their loss."""
    streams = graph.streams(TOKENS)
    logits = graph.logits(streams[-1])
    targets = rng.integers(0, logits.shape[1], len(TOKENS))
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(TOKENS)), targets] -= 1
    gradients = followed(graph, streams, shares)
    np.testing.assert_array_equal(gradients["output.weight"], shares)
    return targets, gradients


def slope(name: str, place: tuple[int, ...], targets: NDArray[np.int64]) -> float:
    """Give the slope of the loss by one weight, from differences."""
    tensors = {key: x.astype(np.float64) for key, x in MODEL.tensors().items()}
    sides = []
    for step in (1e-5, -1e-5):
        changed = {**tensors, name: tensors[name].copy()}
        changed[name][place] += step
        sides.append(loss(changed, targets))
    return (sides[0] - sides[1]) / 2e-5


@pytest.mark.usefixtures("in_float32")
@pytest.mark.parametrize("kind", MATRICES)
def test_gradients_are_those_of_differences(model: Path, kind: str) -> None:
    graph, rng = LlamaGraph(ModelFile(model)), np.random.default_rng(2)
    targets, gradients = gradients_of_targets(graph, rng)
    assert gradients.keys() == set(graph.names)
    entered = inputs_of(MODEL, TOKENS)
    for layer in range(MODEL.n_layer):
        name = f"blk.{layer}.{kind}.weight"
        of_weights = gradients[name].T.astype(np.float64) @ entered[name][0]
        size = np.abs(of_weights).max()
        for _ in range(4):
            place = tuple(int(rng.integers(n)) for n in of_weights.shape)
            expected = slope(name, place, targets)
            assert of_weights[place] == pytest.approx(expected, rel=1e-3, abs=1e-4 * size)


@pytest.mark.usefixtures("in_float32")
def test_gradients_of_embeddings_are_those_of_differences(model: Path) -> None:
    graph, rng = LlamaGraph(ModelFile(model)), np.random.default_rng(3)
    targets, gradients = gradients_of_targets(graph, rng)
    token = int(TOKENS[5])
    of_token = gradients["token_embd.weight"][token == TOKENS].sum(axis=0)
    size = float(np.abs(of_token).max())
    for place in rng.integers(0, MODEL.n_embd, 4).tolist():
        expected = slope("token_embd.weight", (token, place), targets)
        assert of_token[place] == pytest.approx(expected, rel=1e-3, abs=1e-4 * size)


@pytest.mark.parametrize("name", ["tied", "apart"])
def test_squared_gradients_are_in_the_statistics(name: str, text: Path, tmp_path: Path) -> None:
    """They are means over all chunks' tokens but the first, of what the graph gives."""
    source = dataclasses.replace(MODEL, tied=name == "tied").write(tmp_path / "model.gguf")
    calibrate_model(
        source, [text], tmp_path / "stats", n_ctx=64, n_chunks=2, output_side=2, random=0, threads=1
    )
    known = Calibration.read(tmp_path / "stats")
    graph, rng = LlamaGraph(ModelFile(source), threads=1), np.random.default_rng(module.SEED)
    squares: dict[str, list[NDArray[np.float32]]] = {}
    with Running(source) as running:
        sequences = Chunks(known.kept.tokens()).given_to(running)
    for tokens in sequences:
        streams = graph.streams(tokens)
        for tensor, its in followed(graph, streams, module.drawn(graph.logits(streams[-1]), rng)).items():
            squares.setdefault(tensor, []).append(np.square(its[1:]))
    assert known.gradients.keys() == squares.keys()
    assert ("output.weight" in squares) == (name == "apart")
    for tensor, its in squares.items():
        assert len(its) == 2
        assert known.gradients[tensor] == pytest.approx(np.mean(its), rel=1e-4)


def test_hessians_are_in_the_statistics(model: Path, text: Path, tmp_path: Path) -> None:
    options = {"n_ctx": 64, "n_chunks": 6, "threads": 1}
    calibrate_model(model, [text], tmp_path / "with", output_side=3, **options)
    calibrate_model(model, [text], tmp_path / "without", **options)
    known, unknown = Calibration.read(tmp_path / "with"), Calibration.read(tmp_path / "without")
    for tensor in ModelFile(model).tensors:
        is_matrix = (tensor.layer >= 0 and len(tensor.shape) == 2) or tensor.name == EMBEDDINGS
        assert known.has_output_hessian(tensor.name) == is_matrix
        assert not unknown.has_output_hessian(tensor.name)
        assert unknown.output_hessian(tensor.name) is None
        if is_matrix:
            hessian = known.output_hessian(tensor.name)
            assert hessian is not None
            assert hessian.shape == (n_given(tensor), n_given(tensor))
            np.testing.assert_array_equal(hessian, hessian.T)
            values = np.linalg.eigvalsh(hessian.astype(np.float64))
            assert values[-1] > 0
            assert values[0] > -1e-6 * values[-1]
    for name in unknown.matrices:
        np.testing.assert_array_equal(known.hessian(name), unknown.hessian(name))


@pytest.mark.skipif(not _core.HAS_BF16_PRODUCTS, reason="this CPU does not multiply BF16")
def test_rounded_products_leave_gradients_much_as_they_are(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = LlamaGraph(ModelFile(model))

    def gradients() -> dict[str, NDArray[np.float32]]:
        streams = graph.streams(TOKENS)
        logits = graph.logits(streams[-1])
        waves = np.cos(np.arange(logits.size, dtype=np.float32)).reshape(logits.shape)
        given = followed(graph, streams, waves)
        del given["output.weight"]  # those that the graph was given
        return given

    rounded = gradients()
    monkeypatch.setattr(_core, "HAS_BF16_PRODUCTS", False)
    for name, exact in gradients().items():
        assert 1e-4 < np.linalg.norm(rounded[name] - exact) / np.linalg.norm(exact) < 0.03, name


def test_hessians_of_some_matrices_are_those_of_all(model: Path, text: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"n_ctx": 64, "n_chunks": 4, "threads": 1, "output_side": 2}
    calibrate_model(model, [text], tmp_path / "all", **options)
    calibrate_model(model, [text], tmp_path / "one", output_side_of=["blk.1.attn_k.weight"], **options)
    of_all, of_one = Calibration.read(tmp_path / "all"), Calibration.read(tmp_path / "one")
    assert [name for name in of_one.matrices if of_one.has_output_hessian(name)] == ["blk.1.attn_k.weight"]
    np.testing.assert_array_equal(*(of.output_hessian("blk.1.attn_k.weight") for of in (of_all, of_one)))


def test_kinds_with_the_narrowest_outputs_come_first(model: Path) -> None:
    file = ModelFile(model)

    def of(*kinds: str) -> list[Tensor]:
        return [t for t in file.tensors if any(kind in t.name for kind in kinds) and t.layer >= 0]

    keys_values = of("attn_k.", "attn_v.")  # 32 outputs; attn_q, attn_output and ffn_down have 64
    n_bytes = output_side_bytes(keys_values)
    assert set(narrow_outputs(file, n_bytes)) == {tensor.name for tensor in keys_values}
    assert len(narrow_outputs(file, n_bytes - 1)) == MODEL.n_layer
    assert not narrow_outputs(file, n_bytes // 2 - 1)
    narrow = of("attn_k.", "attn_v.", "attn_q.", "attn_output.", "ffn_down.")
    narrow += [tensor for tensor in file.tensors if tensor.name == EMBEDDINGS]  # whose rows have 64 numbers
    assert set(narrow_outputs(file, output_side_bytes(narrow) + n_bytes)) == {t.name for t in narrow}
    assert set(narrow_outputs(file, sys.maxsize)) == LlamaGraph(file).n_out.keys()


def test_rows_of_the_vocabulary_are_decoded_in_parts(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = LlamaGraph(ModelFile(model))

    def gradients() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        streams = graph.streams(TOKENS)
        logits = graph.logits(streams[-1])
        return logits, followed(graph, streams, logits)["blk.0.attn_q.weight"]

    whole = gradients()
    monkeypatch.setattr("pyquant.calibration.gradients.llama_graph.BLOCK_BYTES", 7 * 4 * MODEL.n_embd)
    for parts, of_all in zip(gradients(), whole):
        np.testing.assert_allclose(parts, of_all, rtol=1e-3, atol=1e-5 * np.abs(of_all).max())


@pytest.mark.parametrize("n", [1, 64, 256, 300, 600])
def test_a_matrix_is_folded_and_unfolded(n: int) -> None:
    x = np.random.default_rng(n).normal(size=(n, n)).astype(np.float32)
    np.testing.assert_array_equal(full_matrix(triangle_of(x + x.T), n), x + x.T)


@pytest.mark.parametrize("name", ["Gemma 3", "Mixtral", "Mamba"])
def test_other_families_are_refused(name: str, text: Path, tmp_path: Path) -> None:
    source = FAMILIES[name].write(tmp_path / "model.gguf")
    refused = run(
        *["calibrate", source, "--text", text, "--ctx", "32", "--chunks", "2", "--output-side", "1"],
        *["-o", tmp_path / "stats"],
    )
    assert refused.returncode == 2
    assert "gradients: " in refused.stderr
    assert "known for architectures llama, qwen2, qwen3 without experts" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


def test_a_run_that_ended_is_taken_up(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, output = tmp_path / "whole", tmp_path / "stats"
    options: dict[str, Any] = {
        "n_ctx": 64, "n_chunks": 4, "output_side": 3, "threads": 1, "checkpoint_seconds": 0
    }  # fmt: skip
    calibrate_model(model, [text], whole, **options)
    sequences: list[int] = []
    backwards = LlamaGraph.backwards

    def counted(self: LlamaGraph, *given: Any) -> None:
        sequences.append(1)
        if len(sequences) == 3:
            raise KeyboardInterrupt
        backwards(self, *given)

    monkeypatch.setattr(LlamaGraph, "backwards", counted)
    with pytest.raises(KeyboardInterrupt):
        calibrate_model(model, [text], output, **options)
    assert [path.name for path in tmp_path.iterdir() if path != whole] == [".stats.output-side.npz"]
    calibrate_model(model, [text], output, **options)
    assert len(sequences) == 4  # the third one alone was done again
    assert output.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stats", "whole"]


@pytest.mark.parametrize(
    "change",
    [
        {"chunks done": np.array([1, 2])}, {"chunks done": np.array("x")},
        {"blk.0.attn_q.weight": np.float32(1)},
        {"blk.0.attn_q.weight": np.full((64, 64), np.nan, np.float32)}, {"other": np.zeros(3, np.float32)},
    ],
)  # fmt: skip
def test_kept_sums_of_another_form_are_not_used(change: dict[str, np.ndarray], tmp_path: Path) -> None:
    kept = KeptSums(tmp_path / "stats", "", Chunks(np.zeros((2, 4), np.int32)), 0)
    sound = {"blk.0.attn_q.weight": np.eye(64, dtype=np.float32)}
    kept.keep(1, sound, last=True)
    shapes = {"blk.0.attn_q.weight": (64, 64)}
    n_done, sums = kept.read(shapes)
    assert (n_done, sums.keys()) == (1, shapes.keys())
    path = tmp_path / ".stats.output-side.npz"
    with np.load(path) as arrays:
        entries = {**arrays, **change}
    np.savez(path, **entries)
    assert kept.read(shapes) == (0, {})


def test_kept_sums_by_another_cpu_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = tmp_path / "stats", "", Chunks(np.zeros((2, 4), np.int32)), 0
    shapes = {"blk.0.attn_q.weight": (64, 64)}
    KeptSums(*arguments).keep(1, {"blk.0.attn_q.weight": np.eye(64, dtype=np.float32)}, last=True)
    for has_products, n_done in ((_core.HAS_BF16_PRODUCTS, 1), (not _core.HAS_BF16_PRODUCTS, 0)):
        monkeypatch.setattr(_core, "HAS_BF16_PRODUCTS", has_products)
        assert KeptSums(*arguments).read(shapes)[0] == n_done


def test_kept_sums_of_chunks_of_another_length_are_not_used(tmp_path: Path) -> None:
    tokens, sound = np.zeros(64, np.int32), {"blk.0.attn_q.weight": np.eye(64, dtype=np.float32)}
    KeptSums(tmp_path / "stats", "", Chunks(tokens.reshape(8, 8)), 0).keep(1, sound, last=True)
    for shape, n_done in (((8, 8), 1), ((16, 4), 0)):
        told: list[str] = []
        kept = KeptSums(tmp_path / "stats", "", Chunks(tokens.reshape(shape)), 0, tell=told.append)
        assert kept.read({"blk.0.attn_q.weight": (64, 64)})[0] == n_done
        assert told == ([] if n_done else [not_used(tmp_path / ".stats.output-side.npz")])


def test_a_damaged_file_of_kept_sums_is_made_again(model: Path, text: Path, tmp_path: Path) -> None:
    (tmp_path / ".stats.output-side.npz").write_bytes(b"PK\x03\x04 cut off")
    for name in ("stats", "whole"):
        calibrate_model(model, [text], tmp_path / name, n_ctx=64, n_chunks=2, output_side=1, threads=1)
    assert (tmp_path / "stats").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_model_that_computes_otherwise_is_refused(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Turned(LlamaGraph):
        def __init__(self, file: ModelFile, **options: Any) -> None:
            super().__init__(file, **options)
            self._frequencies = self._frequencies / 3

    monkeypatch.setattr(module, "LlamaGraph", Turned)
    with pytest.raises(ConfigError, match="computes something else than the graph of llama"):
        calibrate_model(model, [text], tmp_path / "stats", n_ctx=64, n_chunks=2, output_side=1)
    assert not list(tmp_path.iterdir())


def test_rounded_products_make_no_other_model(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They move logits of wide matrices far enough."""
    monkeypatch.setattr(module, "SAME", 1e-6)
    with Running(model) as running:
        assert module.why_other(running, Chunks(TOKENS[None]), 1) is None
        if _core.HAS_BF16_PRODUCTS:
            monkeypatch.setattr(module, "LlamaGraph", lambda file, *, exact, threads: LlamaGraph(file))
            assert module.why_other(running, Chunks(TOKENS[None]), 1) is not None


@pytest.mark.usefixtures("in_float32")
@pytest.mark.parametrize("name", ["Llama", "Mistral", "Qwen2", "Qwen3"])
def test_families_are_known(name: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits are llama.cpp's, which a calibration checks, and gradients those of the logits' differences."""
    monkeypatch.setattr(module, "SAME", 1e-4)
    family = dataclasses.replace(FAMILIES[name], type=GGMLQuantizationType.F32)
    source = family.write(tmp_path / "model.gguf")
    calibrate_model(source, [text], tmp_path / "stats", n_ctx=32, n_chunks=2, output_side=2, threads=1)
    graph = LlamaGraph(ModelFile(source))
    tokens = np.random.default_rng(3).integers(259, 320, 16).astype(np.int32)
    streams = graph.streams(tokens)
    upstream = np.random.default_rng(4).normal(size=graph.logits(streams[-1]).shape).astype(np.float32)
    gradients = followed(graph, streams, upstream)
    for kind in BIASED:  # what a bias adds is added to what the matrix gives for every token
        its, bias = f"blk.0.{kind}.weight", f"blk.0.{kind}.bias"
        before = graph._tensors.get(bias)
        values = np.zeros(graph.n_out[its], np.float32) if before is None else before.weights().ravel()
        step = np.random.default_rng(5).normal(size=len(values)).astype(np.float32)
        sides = []
        for size in (1e-2, -1e-2):
            changed = values + np.float32(size) * step
            graph._tensors[bias] = types.SimpleNamespace(weights=lambda x=changed: x)
            logits = graph.logits(graph.streams(tokens)[-1])
            sides.append(float((logits.astype(np.float64) * upstream).sum()))
        del graph._tensors[bias]
        if before is not None:
            graph._tensors[bias] = before
        slope = float((gradients[its].sum(axis=0) * step).sum())
        assert slope == pytest.approx((sides[0] - sides[1]) / 2e-2, rel=0.01)
