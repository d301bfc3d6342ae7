"""Rounding in the model's order: what both passes see, what is corrected, and what is refused."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from pyquant import _core
from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.calibration import Calibration
from pyquant.calibration.sample import MOST_CHUNKS, sample_chunks, spread
from pyquant.data import model_path
from pyquant.errors import ConfigError, ModelFileError, OutputError
from pyquant.evaluate.compare import compare_models
from pyquant.llama.model import Model
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.unpack import unpack_model
from pyquant.models.tensor import Tensor
from pyquant.models.unpack_q4_t import unpack_q4_t
from pyquant.quantize.correction import Correction, Corrections
from pyquant.quantize.in_order import write_in_order
from pyquant.quantize.quantize_model import quantize_model
from pyquant.quantize.staged_context import StagedContext
from pyquant.quantize.stream_correction import StreamCorrection
from pyquant.quantize.to_pqz import quantize_to_pqz
from pyquant.schemes.damping import CORRECTION
from pyquant.schemes.settings import make_mode
from tests.support.command import ENVIRONMENT, run

F32, EXPERTS = "f32, rows of 64 and 96", "f16, experts"
ODD_ROWS = "bf16, tied, rows of 64 and 172"


@pytest.fixture(scope="module")
def stats_of(generated: Callable[[str], Path], text: Path, tmp_path_factory) -> Callable[[str], Path]:
    """STATS of a generated model."""

    @cache
    def make(name: str) -> Path:
        path = tmp_path_factory.mktemp("stats") / "stats.gguf"
        calibrate_model(generated(name), [text, text], path, n_ctx=64)
        return path

    return make


@pytest.fixture(scope="module")
def made(generated, stats_of, tmp_path_factory) -> Callable[..., Path]:
    """A generated model quantized to IQ4_NL by its STATS, in order unless said otherwise."""
    folder = tmp_path_factory.mktemp("made")

    @cache
    def make(model: str, **settings: object) -> Path:
        output = folder / f"{len(list(folder.iterdir()))}.gguf"
        mode = {"mode": "ggml:IQ4_NL", "calibration": stats_of(model), "sequential": 32, **settings}
        quantize_model(generated(model), output, make_mode(mode))
        return output

    return make


def stored(path: Path) -> dict[str, np.ndarray]:
    return {tensor.name: np.array(tensor.data) for tensor in GGUFReader(path).tensors}


def random_inputs(n_tokens: int = 500, n_in: int = 24) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(n_tokens, n_in)) @ rng.normal(size=(n_in, n_in))
    return x.astype(np.float32), (x + 0.2 * x[:, ::-1] + 0.1 * rng.normal(size=x.shape)).astype(np.float32)


def correction(original: np.ndarray, changed: np.ndarray, damping: float) -> np.ndarray:
    sums = Correction(original.shape[1])
    sums.add(original, changed)
    return sums.result(damping)


def test_the_correction_is_the_best_there_is() -> None:
    original, changed = random_inputs()
    weights = np.random.default_rng(6).normal(size=(7, original.shape[1]))
    corrected = weights + weights @ correction(original, changed, 0)
    best, *_ = np.linalg.lstsq(changed.astype(np.float64), original @ weights.T, rcond=None)
    np.testing.assert_allclose(corrected, best.T, rtol=1e-3, atol=1e-4)


def test_the_stream_is_brought_back_as_far_as_it_can_be() -> None:
    x, y = random_inputs()
    rng = np.random.default_rng(7)
    weights = rng.normal(size=(7, x.shape[1])).astype(np.float32)
    now = rng.normal(size=(len(x), 7)).astype(np.float32)
    stream = now + 0.1 * y @ rng.normal(size=(y.shape[1], 7)).astype(np.float32)
    stream[0] *= 1e6  # a token as large as all others, and more, counts like any other
    sums = StreamCorrection(weights)
    sums.add(x, y, stream, now)
    behind = stream + x @ weights.T
    size = np.linalg.norm(behind, axis=1, keepdims=True).astype(np.float64)
    best, *_ = np.linalg.lstsq(y / size, (behind - now) / size, rcond=None)
    np.testing.assert_allclose(weights + sums.result(0), best.T, rtol=1e-2, atol=1e-3)


def test_what_products_are_added_to_is_known(generated) -> None:
    path = generated(F32)
    model = ModelFile(path)
    by_name = {tensor.name: tensor for tensor in model.tensors}
    tokens = np.random.default_rng(0).integers(5, 60, (3, 32)).astype(np.int32)
    names = [name for name in by_name if name.startswith("blk.") and by_name[name].n_rows > 1]
    with Model(path) as running, StagedContext(running, names, [tokens], 1) as context:
        known = {name for stage in context.stages if stage.in_stream for name in stage.matrices}
        n_layers = 1 + max(int(name.split(".")[1]) for name in names)
        # In the last layer most tokens are left out between the product and the sum.
        expected = {f"blk.{layer}.ffn_down.weight" for layer in range(n_layers)}
        assert known == expected | {f"blk.{layer}.attn_output.weight" for layer in range(n_layers - 1)}
        number = next(i for i, s in enumerate(context.stages) if s.matrices == ["blk.0.attn_output.weight"])
        with tempfile.TemporaryFile() as file:
            largest = max(stage.n_bytes for stage in context.stages)
            states = _core.PassStates(1, n_bytes=largest, memory=largest, file=file.fileno())
            context.run(0, None, number, states, 0)
            stream = context.stream()
        embeddings = by_name["token_embd.weight"].weights()
        np.testing.assert_array_equal(stream, embeddings[tokens.ravel()])


def test_damping_keeps_the_correction_small() -> None:
    original, changed = random_inputs()
    sizes = [np.linalg.norm(correction(original, changed, damping)) for damping in (0, 0.1, 10)]
    assert sizes[0] > sizes[1] > sizes[2]
    assert not correction(changed, changed, 0.1).any()
    assert not correction(np.zeros_like(changed), np.zeros_like(changed), 0).any()  # dead inputs


def test_sums_over_portions_are_over_all_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    original, changed = random_inputs()
    at_once = correction(original, changed, CORRECTION)
    monkeypatch.setattr("pyquant.quantize.correction.PORTION", 7)
    np.testing.assert_allclose(correction(original, changed, CORRECTION), at_once, atol=1e-5)


def test_kept_chunks_are_of_all_texts_in_their_shares() -> None:
    def text(n: int, begin: int) -> np.ndarray:
        return np.arange(begin, begin + n, dtype=np.int32)[:, None].repeat(4, 1)

    kept = sample_chunks([text(3000, 0), text(1000, 10_000)], [1, 1])[:, 0]
    assert len(kept) == MOST_CHUNKS
    assert (kept >= 10_000).sum() == MOST_CHUNKS / 4
    assert np.ptp(np.diff(kept[kept < 10_000])) <= 1  # at even distances
    few = sample_chunks([text(300, 0), text(50, 10_000)], [1, 6])[:, 0]
    assert (few >= 10_000).sum() == 50  # all there are
    np.testing.assert_array_equal(sample_chunks([text(7, 0)], [1]), text(7, 0))
    np.testing.assert_array_equal(spread(text(7, 0), 3)[:, 0], [0, 3, 6])


def in_order(path: Path, stats: Path, write: Callable, names: str = "blk") -> list[str]:
    """The matrices that a run came to. write: (tensor, weights or None) -> the values that it then has."""
    model, calibration, met = ModelFile(path), Calibration.read(stats), []

    def note(tensor: Tensor, weights: np.ndarray | None, copy: np.ndarray) -> None:
        met.append(tensor.name)
        copy[:] = _core.ggml_encoder(int(tensor.type)).encode(write(tensor, weights))

    wanted = [t for t in model.tensors if t.name in calibration.matrices and names in t.name]
    write_in_order(model, calibration, wanted, 32, note, folder=stats.parent, threads=2)
    return met


@pytest.mark.parametrize("model", [F32, EXPERTS, ODD_ROWS])
def test_what_is_not_rounded_is_not_corrected(generated, stats_of, model: str) -> None:
    def keep(tensor: Tensor, weights: np.ndarray | None) -> np.ndarray:
        own = tensor.weights()
        if weights is None:
            assert "exps" in tensor.name  # tokens that are routed
        else:
            np.testing.assert_array_equal(weights, own)
        return own

    met = in_order(generated(model), stats_of(model), keep)
    assert sorted(met) == sorted(n for n in Calibration.read(stats_of(model)).matrices if "blk" in n)
    assert [name.split(".")[1] for name in met] == sorted(name.split(".")[1] for name in met)  # by layer
    first = [name.split(".")[2] for name in met if name.startswith("blk.0.")]
    assert set(first[:3]) == {"attn_q", "attn_k", "attn_v"}
    assert first[3] == "attn_output"


def test_what_comes_after_makes_up_for_what_was_changed(generated, stats_of, monkeypatch) -> None:
    """What the output projections get is doubled: they want half of their weights."""
    monkeypatch.setattr("pyquant.quantize.in_order.STREAM", 0.01)
    found = {}

    def scale(tensor: Tensor, weights: np.ndarray) -> np.ndarray:
        found[tensor.name] = weights, tensor.weights()
        if "attn_output" in tensor.name:
            return weights  # else what it has done to the stream would be made up for by ffn_down
        # The up projection and V go into what follows as they are: twice as much of them is twice that.
        return tensor.weights() * (2 if "ffn_up" in tensor.name or "attn_v" in tensor.name else 1)

    in_order(generated(F32), stats_of(F32), scale, "blk.0.")
    for name in ("attn_output", "ffn_down"):
        corrected, own = found[f"blk.0.{name}.weight"]
        # Not all of it: damping leaves directions alone in which little enters.
        share = np.linalg.norm(corrected - own / 2) / np.linalg.norm(own / 2)
        assert share < 0.2
        assert np.linalg.norm(corrected) < 0.8 * np.linalg.norm(own)


def test_the_first_inputs_are_as_they_were(made) -> None:
    in_order, alone = stored(made(F32)), stored(made(F32, sequential=None, damping=0.3))
    for name in ("attn_q", "attn_k", "attn_v"):
        np.testing.assert_array_equal(in_order[f"blk.0.{name}.weight"], alone[f"blk.0.{name}.weight"])
    assert (in_order["blk.0.ffn_down.weight"] != alone["blk.0.ffn_down.weight"]).any()
    assert (in_order["blk.1.attn_q.weight"] != alone["blk.1.attn_q.weight"]).any()
    for name in ("token_embd.weight", "output.weight"):
        np.testing.assert_array_equal(in_order[name], alone[name])


def test_experts_that_few_tokens_are_sent_to_are_not_corrected(made) -> None:
    in_order, alone = stored(made(EXPERTS)), stored(made(EXPERTS, sequential=None, damping=0.3))
    experts = [name for name in in_order if "exps" in name]
    assert experts
    for name in experts:
        np.testing.assert_array_equal(in_order[name], alone[name])
    assert (in_order["blk.0.attn_output.weight"] != alone["blk.0.attn_output.weight"]).any()


def test_the_same_file_again(made, generated, stats_of, tmp_path: Path) -> None:
    mode = {"mode": "ggml:IQ4_NL", "calibration": stats_of(F32), "sequential": 32}
    quantize_model(generated(F32), tmp_path / "again.gguf", make_mode(mode))
    assert (tmp_path / "again.gguf").read_bytes() == made(F32).read_bytes()
    assert ModelFile(made(F32)).get("pyquant.sequential") == 32
    assert ModelFile(made(F32, sequential=None)).get("pyquant.sequential") is None


def test_matrices_of_every_kind_of_output(made, generated, stats_of, tmp_path: Path) -> None:
    """Types that GGML rounds, tables in stock blocks and packed, uniform steps in a packed file."""
    alone = stored(made(F32, mode="ggml:Q6_K", sequential=None))
    assert any((alone[name] != data).any() for name, data in stored(made(F32, mode="ggml:Q6_K")).items())

    packed, table = made(F32, mode="q4_0", store="q4_t"), made(F32, mode="q4_0")
    unpack_q4_t(packed, tmp_path / "unpacked.gguf")
    assert (tmp_path / "unpacked.gguf").read_bytes() == table.read_bytes()

    uniform = made(F32, mode="uniform", step=0.01)
    mode = make_mode({"mode": "uniform", "step": 0.01, "calibration": stats_of(F32), "sequential": 32})
    quantize_to_pqz(generated(F32), tmp_path / "out.pqz", mode)
    unpack_model(tmp_path / "out.pqz", tmp_path / "out.gguf")
    assert (tmp_path / "out.gguf").read_bytes() == uniform.read_bytes()


def refused(source: Path, output: Path, error: type[Exception], message: str, **settings: object) -> None:
    with pytest.raises(error, match=message):
        quantize_model(source, output, make_mode({"mode": "ggml:IQ4_NL", **settings}))
    assert not output.exists()
    assert not list(output.parent.glob(".*partial"))


def test_what_is_refused(generated, stats_of, text: Path, tmp_path: Path) -> None:
    source, stats, out = generated(F32), stats_of(F32), tmp_path / "out.gguf"
    refused(source, out, ConfigError, "sequential: is of a calibration, and none is given", sequential=32)
    imatrix = tmp_path / "imatrix.gguf"
    calibrate_model(source, [text], tmp_path / "few", n_ctx=64, n_chunks=2, imatrix=imatrix)
    refused(source, out, ConfigError, "sequential: needs --calibration", calibration=imatrix, sequential=32)
    few = r"2 chunks of 64 tokens of .* are too few: blk.*weight, with rows of 96, needs 768 tokens"
    refused(source, out, ConfigError, few, calibration=stats, sequential=2)
    with pytest.raises(ConfigError, match="sequential"):
        make_mode({"mode": "q4_0", "calibration": stats, "sequential": 257})


def routed_inputs(n_used: int) -> tuple[np.ndarray, ...]:
    """Inputs of 400 tokens of either pass, and the two of three experts that they are sent to."""
    rng = np.random.default_rng(8)
    original = rng.normal(size=(400, n_used, 24)).astype(np.float32)
    changed = (original + 0.1 * original[..., ::-1]).astype(np.float32)
    experts = np.array([rng.permutation(3)[:2] for _ in range(400)], np.int32)
    moved = experts.copy()
    moved[::5] = [2, 0]  # some tokens go elsewhere in the copy
    return original, changed, experts, moved


def test_each_expert_is_corrected_by_its_tokens() -> None:
    for n_used in (1, 2):
        original, changed, experts, moved = routed_inputs(n_used)
        sums = Corrections(3, 24)
        for part in (slice(0, 150), slice(150, 400)):
            sums.add(original[part], changed[part], experts[part], moved[part])
        for expert, change in enumerate(sums.results(CORRECTION)):
            pairs = []
            for token in range(400):
                now, before = moved[token].tolist(), experts[token].tolist()
                if expert in now and n_used == 1:
                    pairs.append((original[token, 0], changed[token, 0]))
                elif expert in now and expert in before:
                    pairs.append((original[token, before.index(expert)], changed[token, now.index(expert)]))
            x, y = map(np.array, zip(*pairs))
            assert len(x) >= 8 * 24
            np.testing.assert_allclose(change, correction(x, y, CORRECTION), rtol=1e-3, atol=1e-5)


def test_experts_without_enough_tokens_are_left_alone() -> None:
    original, changed, experts, _ = routed_inputs(1)
    sums = Corrections(4, 24)
    sums.add(original[:150], changed[:150], experts[:150], np.where(experts == 2, 3, experts)[:150])
    assert [change is None for change in sums.results(CORRECTION)] == [True] * 4
    sums.add(original, changed, experts, np.where(experts == 2, 3, experts))
    assert [change is None for change in sums.results(CORRECTION)] == [False, False, True, False]


@pytest.mark.parametrize("model", [F32, EXPERTS])
def test_the_file_does_not_depend_on_memory(
    generated, stats_of, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setattr("pyquant.quantize.staged_context.PIECE", 512)
    mode = make_mode({"mode": "ggml:IQ4_NL", "calibration": stats_of(model), "sequential": 32})
    files = [tmp_path / f"{memory}.gguf" for memory in (None, 600_000, 0)]
    for path, memory in zip(files, (None, 600_000, 0)):
        quantize_model(generated(model), path, mode, threads=1, memory=memory)
        assert path.read_bytes() == files[0].read_bytes()
    assert sorted(tmp_path.iterdir()) == sorted(files)


def inputs_of_stages(source: Path, stats: Path, folder: Path, chunks: int) -> list[np.ndarray]:
    """What enters matrices in both passes, the copy's values being changed as they are reached."""
    entered: list[list[np.ndarray]] = []

    class Noted(Correction):
        def __init__(self, n_in: int) -> None:
            super().__init__(n_in)
            entered.append([])

        def add(self, original: np.ndarray, changed: np.ndarray) -> None:
            entered[-1].append(np.stack([original, changed]))

    class NotedStream(StreamCorrection):
        def __init__(self, weights: np.ndarray) -> None:
            super().__init__(weights)
            entered.append([])

        def add(self, *sides: np.ndarray) -> None:
            original, changed, stream, changed_stream = sides
            now = np.hstack([original, stream]), np.hstack([changed, changed_stream])
            entered[-1].append(np.stack(now))

    def write(tensor: Tensor, weights: np.ndarray | None, copy: np.ndarray) -> None:
        copy[:] = _core.ggml_encoder(int(tensor.type)).encode(0.9 * tensor.weights())

    model, calibration = ModelFile(source), Calibration.read(stats)
    wanted = [t for t in model.tensors if t.name in calibration.matrices and "blk" in t.name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyquant.quantize.correction.Correction", Noted)
        patch.setattr("pyquant.quantize.in_order.StreamCorrection", NotedStream)
        patch.setattr("pyquant.quantize.staged_context.PIECE", chunks * 64)
        write_in_order(model, calibration, wanted, 32, write, folder=folder, threads=1, memory=0)
    return [np.concatenate(parts, axis=1) for parts in entered]


@pytest.mark.parametrize("model", [F32, ODD_ROWS])
def test_what_enters_does_not_depend_on_pieces(generated, stats_of, tmp_path: Path, model: str) -> None:
    whole, pieces = (inputs_of_stages(generated(model), stats_of(model), tmp_path, n) for n in (32, 5))
    assert len(whole) == len(pieces) >= 8
    for at_once, in_pieces in zip(whole, pieces):
        np.testing.assert_array_equal(at_once, in_pieces)
    assert all((original != changed).any() for original, changed in whole[1:])


def test_sizes_are_said_before_it_begins(generated, stats_of, tmp_path: Path) -> None:
    told: list[str] = []
    mode = make_mode({"mode": "ggml:IQ4_NL", "calibration": stats_of(F32), "sequential": 32})
    quantize_model(generated(F32), tmp_path / "out.gguf", mode, memory=1000, tell=told.append)
    assert len(told) == 1
    assert re.fullmatch(r"in order: about 0\.\d+ GB of memory: .* and 0\.\d+ GB on disk", told[0])
    with pytest.raises(ConfigError, match="memory: is of --sequential"):
        quantize_model(generated(F32), tmp_path / "out.gguf", make_mode({"mode": "q4_0"}), memory=1000)


def test_more_memory_than_there_is(generated, stats_of, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("pyquant.quantize.in_order_memory.available_memory", lambda: 10_000)
    message = r"about 0\.\d+ GB of memory: .*; 1e-05 GB of memory are free: give fewer chunks, or --memory"
    settings = {"calibration": stats_of(F32), "sequential": 32}
    refused(generated(F32), tmp_path / "out.gguf", ConfigError, message, **settings)


def test_more_disk_than_there_is(generated, stats_of, small_disk: Path) -> None:
    mode = make_mode({"mode": "ggml:IQ4_NL", "calibration": stats_of(F32), "sequential": 32})
    with pytest.raises(OutputError, match=r"no room: in order: .* on disk; 0\.\d+ GB are free there"):
        quantize_model(generated(F32), small_disk / "out.gguf", mode, memory=0)
    assert list(small_disk.iterdir()) == []


def test_statistics_without_tokens_are_refused(generated, stats_of, tmp_path: Path) -> None:
    calibration = Calibration.read(stats_of(F32))
    del calibration._rows.tensors["tokens"]
    with pytest.raises(ModelFileError, match="holds no tokens to run the model over; calibrate anew"):
        calibration.tokens(32)


def test_a_failure_ends_both_passes(generated, stats_of) -> None:
    def fail(tensor: Tensor, weights: np.ndarray | None) -> np.ndarray:
        if "ffn" in tensor.name:
            raise ModelFileError("no such weights")
        return tensor.weights()

    with pytest.raises(ModelFileError, match="no such weights"):
        in_order(generated(F32), stats_of(F32), fail)
    with pytest.raises(ValueError, match="broadcast"):
        in_order(generated(F32), stats_of(F32), lambda tensor, weights: tensor.weights()[:3])


def test_inputs_that_are_not_finite_are_named(generated, stats_of) -> None:
    def explode(tensor: Tensor, weights: np.ndarray | None) -> np.ndarray:
        return np.full_like(tensor.weights(), 3e38)

    with pytest.raises(ModelFileError, match=r"what enters blk\.0\.\w+\.weight is not finite, or too large"):
        in_order(generated(F32), stats_of(F32), explode)


def test_few_logits_leave_the_last_layer_alone(generated, stats_of, monkeypatch: pytest.MonkeyPatch) -> None:
    # Tokens without logits do not come to the last layer's feed-forward part.
    monkeypatch.setattr("pyquant.quantize.staged_context.LOGITS_BYTES", 1 << 16)
    without = []

    def write(tensor: Tensor, weights: np.ndarray | None) -> np.ndarray:
        without.extend([tensor.name] if weights is None else [])
        return tensor.weights()

    met = in_order(generated(F32), stats_of(F32), write)
    last = max(int(name.split(".")[1]) for name in met)
    assert without
    assert all(name.startswith(f"blk.{last}.ffn") for name in without)


def test_the_command(generated, stats_of, made, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    arguments = ["quantize", generated(F32), out, "--mode", "ggml:IQ4_NL", "--calibration", stats_of(F32)]
    told = run(*arguments, "--sequential", 32)
    assert told.returncode == 0, told.stderr
    assert out.read_bytes() == made(F32).read_bytes()


@pytest.mark.parametrize("seconds", [0.1, 0.3, 1])
def test_ctrl_c(held_out_text: Path, tmp_path: Path, seconds: float) -> None:
    source, stats, out = model_path(), tmp_path / "stats", tmp_path / "out.gguf"
    calibrate_model(source, [held_out_text], stats, n_ctx=256, n_chunks=32, threads=1)
    arguments = ["quantize", source, out, "--mode", "ggml:Q4_0", "--calibration", stats, "--sequential", 32]
    command = [sys.executable, "-m", "pyquant", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENVIRONMENT)
    while process.poll() is None and not (tmp_path / ".out.gguf.partial").exists():
        time.sleep(0.01)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    # Complete, or not there; the signal may also come when all is done, on Python's way out.
    assert out.exists() or process.returncode == 130
    assert b"Traceback" not in told
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("stats", "out.gguf")] == []


def test_killed_it_leaves_what_the_next_run_replaces(generated, stats_of, made, tmp_path: Path) -> None:
    out, common = tmp_path / "out.gguf", ["--mode", "ggml:IQ4_NL", "--calibration", stats_of(F32)]
    arguments = [
        "quantize",
        generated(F32),
        out,
        *common,
        "--sequential",
        32,
        "--memory",
        "1kB",
        "--threads",
        1,
    ]
    command = [sys.executable, "-m", "pyquant", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENVIRONMENT)
    said = process.stderr.readline().decode()  # the sizes: what is kept of the pieces is on disk after that
    time.sleep(0.05)
    process.kill()
    process.communicate(timeout=60)
    assert "on disk" in said
    assert not out.exists()
    assert [path.name for path in tmp_path.iterdir()] == [".out.gguf.partial"]
    assert run(*arguments).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out.gguf"]
    assert out.read_bytes() == made(F32).read_bytes()


def test_it_is_nearer_to_the_model(training_text: Path, held_out_text: Path, tmp_path: Path) -> None:
    source, text = model_path(), held_out_text
    stats, files = tmp_path / "stats", [tmp_path / "alone.gguf", tmp_path / "in-order.gguf"]
    calibrate_model(source, [training_text], stats, n_ctx=256, n_chunks=96, threads=1)
    common = {"mode": "ggml:IQ4_NL", "calibration": stats, "pure": True, "tensors": "blk"}
    for path, chunks in zip(files, (None, 96)):
        quantize_model(source, path, make_mode({**common, "sequential": chunks}))
    found = compare_models(source, files, text, n_ctx=256, n_chunks=24, threads=1).to_json()
    alone, in_order = (one["kld"]["mean"] for one in found["candidates"])
    assert in_order < 0.85 * alone


def test_more_damping_in_order_unless_asked_otherwise() -> None:
    alone, in_order, asked = (
        make_mode({"mode": "q4_0", "calibration": "stats", **more}).damping
        for more in ({}, {"sequential": 4}, {"sequential": 4, "damping": 0.05})
    )
    assert (alone, in_order, asked) == (0.03, 0.3, 0.05)
