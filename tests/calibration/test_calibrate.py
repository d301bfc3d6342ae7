"""Check what enters a model's matrices: beside a forward pass in numpy, and beside llama-imatrix."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyquant import _core
from pyquant.calibration import Calibration
from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.imatrix import read_imatrix
from pyquant.calibration.panels import PANEL, full_matrix, places, triangle_size
from pyquant.calibration.shrinkage import PART, go_to_diagonal
from pyquant.data import model_path
from pyquant.errors import ConfigError, ModelFileError
from pyquant.files.text import read_text
from pyquant.llama.chunks import cut
from pyquant.llama.model import Model as LlamaModel
from pyquant.models.model_file import ModelFile
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.bf16 import rounded
from tests.support.command import run
from tests.support.llama_twin import inputs_of
from tests.support.models import IN_THE_BOX, WITH_SHUT_EXPERTS, Model
from tests.support.oracle import Oracle

DENSE = Model(n_embd=64, n_ff=320, n_layer=2, n_head_kv=2, seed=4)  # two panels of 320
FIRST = {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"}
EXPERTS = Model(n_embd=64, n_ff=96, n_layer=1, n_expert=4, seed=5)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return DENSE.write(tmp_path_factory.mktemp("model") / "dense.gguf")


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return EXPERTS.write(tmp_path_factory.mktemp("model") / "experts.gguf")


@pytest.mark.parametrize("n", [1, 31, PANEL, PANEL + 1, 3 * PANEL - 5])
def test_a_triangle_is_the_lower_one_in_panels(n: int) -> None:
    x = np.random.default_rng(n).normal(size=(5, n)).astype(np.float32)
    matrix = x.T @ x
    triangle = [np.tril(matrix)[first:, first : first + PANEL].ravel() for first in range(0, n, PANEL)]
    triangle = np.concatenate(triangle)
    assert len(triangle) == triangle_size(n)
    whole = full_matrix(triangle, n)
    np.testing.assert_array_equal(whole, np.tril(matrix) + np.tril(matrix, -1).T)
    rows, columns = np.random.default_rng(0).integers(n, size=(2, 100))
    np.testing.assert_array_equal(triangle[places(n, rows, columns)], whole[rows, columns])


@pytest.mark.parametrize(("name", "kind"), [("dense", DENSE), ("experts", EXPERTS)])
def test_hessians_are_those_of_what_numpy_sends_in(
    name: str, kind: Model, text: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(name)
    report = calibrate_model(
        path, [text], tmp_path / "stats", n_ctx=48, n_chunks=3, process_output=True, random=0
    )
    stats = Calibration.read(tmp_path / "stats")
    with LlamaModel(path) as model:
        tokens = cut(model, read_text(text), n_ctx=48, n_chunks=3).tokens.copy()
        tokens[:, 0] = model.vocabulary.bos
    entered = [inputs_of(kind, sequence) for sequence in tokens]
    for matrix in entered[0]:
        if matrix == "blk.0.ffn_gate_inp.weight":
            assert stats.hessian(matrix) is None  # the router is not quantized
            continue
        for expert in range(len(entered[0][matrix])):
            x = np.concatenate([sequence[matrix][expert] for sequence in entered])
            assert stats.counts(matrix)[expert] == len(x)
            hessian = stats.hessian(matrix, expert)
            assert hessian.dtype == np.float32
            np.testing.assert_array_equal(hessian, hessian.T)
            squares = (x**2).mean(axis=0)
            # llama.cpp keeps keys and values in fp16: only what comes before them is as exact as float32.
            near = 1e-6 if matrix in FIRST else 2e-3
            multiplied, undecided = as_multiplied(x)
            expected = multiplied.T @ multiplied / len(x)
            crossed = np.abs(multiplied).T @ undecided + undecided.T @ undecided / 2
            error = np.abs(hessian - expected)
            assert (error <= near * expected.max() + (crossed + crossed.T) / len(x)).all()
            np.testing.assert_allclose(stats.diagonal(matrix)[expert], squares, rtol=10 * near)
        if matrix.endswith("_exps.weight"):
            assert stats.first_token(matrix) is None  # which tokens an expert gets is its router's choice
        else:
            first = np.mean([sequence[matrix][0][0] for sequence in entered], axis=0)
            np.testing.assert_allclose(stats.first_token(matrix), first, rtol=0, atol=near * np.abs(x).max())
    assert stats.n_tokens == report.n_tokens == 144
    assert set(entered[0]) <= set(stats.matrices) | {"output.weight"}


def as_multiplied(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give what is multiplied of inputs, and how far off it may be: of those so close to the middle between
    two BF16 that float32 decides where they are rounded to, half of the way between these."""
    if not _core.HAS_BF16_PRODUCTS:
        return x, np.zeros_like(x)
    low, high = (rounded((x * (1 + e)).astype(np.float32)).astype(np.float64) for e in (-1e-6, 1e-6))
    assert (low != high).mean() < 0.01
    return (low + high) / 2, np.abs(high - low) / 2


def test_matrices_that_share_an_input_share_its_sums(
    dense: Path, experts: Path, text: Path, tmp_path: Path
) -> None:
    report = calibrate_model(dense, [text], tmp_path / "stats", n_ctx=32, n_chunks=2)
    assert (report.n_inputs, report.n_matrices) == (8, 14)  # of 2 layers
    one_layer = 3 * triangle_size(64) + triangle_size(320) + 2 * (3 * 64 + 320)  # squares, first tokens
    assert report.sums_bytes == 2 * 4 * one_layer
    report = calibrate_model(experts, [text], tmp_path / "experts", n_ctx=32, n_chunks=2)
    assert (report.n_inputs, report.n_matrices) == (5, 8)  # with the router's
    stats = Calibration.read(tmp_path / "experts")
    for expert in range(4):
        gate, up = (stats.hessian(f"blk.0.ffn_{name}_exps.weight", expert) for name in ("gate", "up"))
        np.testing.assert_array_equal(gate, up)


def test_texts_count_by_their_weights(dense: Path, text: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("rain, again and again; " * 40)
    options = {"n_ctx": 64, "n_chunks": 2, "random": 0}
    for name, texts, weights in [
        ("a", [text], None),
        ("b", [other], None),
        ("both", [text, other], [1, 0.5]),
    ]:
        calibrate_model(dense, texts, tmp_path / name, weights=weights, **options)
    a, b, both = (Calibration.read(tmp_path / name) for name in ("a", "b", "both"))
    for name in both.matrices:
        assert both.counts(name) == pytest.approx([256])  # of tokens: ratios of weights alone matter
        expected = (a.hessian(name) + 0.5 * b.hessian(name)) / 1.5
        apart = ~np.eye(len(expected), dtype=bool)
        share = 1 - (both.hessian(name)[apart] @ expected[apart]) / np.square(expected[apart]).sum()
        assert 0 < share <= PART + 1e-6  # as far as the texts differ
        go_to_diagonal(expected, share)
        np.testing.assert_allclose(both.hessian(name), expected, rtol=1e-4, atol=1e-6)
        first = (a.first_token(name) + 0.5 * b.first_token(name)) / 1.5
        np.testing.assert_allclose(both.first_token(name), first, rtol=1e-4, atol=1e-6)
    assert both.n_tokens == 256
    used = [(text.weight, text.n_chunks) for text in both.origin.texts]
    assert used == [(pytest.approx(4 / 3), 2), (pytest.approx(2 / 3), 2)]


def test_streams_are_those_that_numpy_has(dense: Path, text: Path, tmp_path: Path) -> None:
    calibrate_model(dense, [text], tmp_path / "stats", n_ctx=48, n_chunks=3, random=0)
    stats = Calibration.read(tmp_path / "stats")
    with LlamaModel(dense) as model:
        tokens = cut(model, read_text(text), n_ctx=48, n_chunks=3).tokens.copy()
        tokens[:, 0] = model.vocabulary.bos
    lengths: dict[str, list[np.ndarray]] = {}
    for sequence in tokens:
        streams: dict[str, np.ndarray] = {}
        inputs_of(DENSE, sequence, streams)
        for name, stream in streams.items():
            lengths.setdefault(name, []).append(np.square(stream).sum(axis=1))
    size = {name: np.exp(np.log(np.concatenate(squares)).mean()) for name, squares in lengths.items()}
    last = DENSE.n_layer - 1  # whose second half meets few tokens
    for layer in range(last):
        behind = {"attn_output": f"blk.{layer}.ffn_gate", "ffn_down": f"blk.{layer + 1}.attn_q"}
        for kind, normed in behind.items():
            entered = stats.enters_stream(f"blk.{layer}.{kind}.weight")
            assert entered == pytest.approx(size[f"{normed}.weight"], rel=1e-3)
        for kind in ("attn_q", "attn_v", "ffn_up"):
            assert stats.enters_stream(f"blk.{layer}.{kind}.weight") is None
    # The output's norm is behind it, of which every 16th token is computed.
    every = np.concatenate([squares[15::16] for squares in lengths["output.weight"]])
    expected = np.exp(np.log(every).mean())
    assert stats.enters_stream(f"blk.{last}.ffn_down.weight") == pytest.approx(expected, rel=1e-3)


def test_a_tied_output_is_collected(generated: Callable[[str], Path], text: Path, tmp_path: Path) -> None:
    model = generated("bf16, tied, rows of 64 and 172")
    for asked in (True, False):
        stats, imatrix = tmp_path / f"{asked}.stats", tmp_path / f"{asked}.imatrix"
        calibrate_model(
            model, [text], stats, n_ctx=64, n_chunks=3, process_output=asked, imatrix=imatrix, random=0
        )
        known = Calibration.read(stats)
        assert ("token_embd.weight" in known.matrices) == asked
        assert "token_embd.weight" not in read_imatrix(imatrix).weights  # as llama-imatrix has it
    hessian = Calibration.read(tmp_path / "True.stats").hessian("token_embd.weight")
    assert hessian is not None
    assert hessian.shape == (64, 64)
    assert np.linalg.eigvalsh(hessian.astype(np.float64)).min() > -1e-6 * np.trace(hessian)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "n_ctx", "n_chunks", "options"),
    [
        ("dense", 64, 40, []),
        ("dense", 512, 5, ["--process-output"]),
        ("experts", 128, 9, []),
        ("f16, experts", 256, 3, ["--process-output"]),
        ("bf16, tied, rows of 64 and 172", 256, 4, ["--process-output"]),
        (IN_THE_BOX, 256, 12, []),
        ("stories260K-f32.gguf", 128, 20, []),
    ],
)
def test_the_imatrix_is_llama_imatrix_s(
    name: str, n_ctx: int, n_chunks: int, options: list[str],
    oracle: Oracle, text: Path, held_out_text: Path, tmp_path: Path, request: pytest.FixtureRequest,
    generated: Callable[[str], Path],
) -> None:  # fmt: skip
    if name == IN_THE_BOX:
        model, text = model_path(), held_out_text
    elif name.endswith(".gguf"):
        model = request.getfixturevalue("shared") / "models" / name
        text = request.getfixturevalue("shared") / "data" / "wiki.valid.raw"
    else:
        model = request.getfixturevalue(name) if name in ("dense", "experts") else generated(name)
    calibrate_model(
        model, [text], tmp_path / "stats", n_ctx=n_ctx, n_chunks=n_chunks, threads=2,
        imatrix=tmp_path / "ours.gguf", process_output=bool(options),
    )  # fmt: skip
    theirs = tmp_path / "theirs.gguf"
    stock_imatrix(oracle, model, text, theirs, n_ctx, n_chunks, "-ub", 2048, *options)
    assert (tmp_path / "ours.gguf").read_bytes() == theirs.read_bytes()


@pytest.mark.oracle
def test_the_imatrix_is_near_one_of_smaller_batches(
    oracle: Oracle, held_out_text: Path, tmp_path: Path
) -> None:
    model, text = model_path(), held_out_text
    ours, theirs = tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
    calibrate_model(model, [text], tmp_path / "stats", imatrix=ours, n_ctx=256, n_chunks=8)
    stock_imatrix(oracle, model, text, theirs, 256, 8)
    ours, theirs = read_imatrix(ours), read_imatrix(theirs)
    assert list(ours.weights) == list(theirs.weights)
    for matrix, weights in ours.weights.items():
        np.testing.assert_array_equal(ours.counts[matrix], theirs.counts[matrix])
        np.testing.assert_allclose(weights, theirs.weights[matrix], rtol=1e-5)


def stock_imatrix(
    oracle: Oracle, model: Path, text: Path, output: Path, n_ctx: int, n_chunks: int, *options: object
) -> None:
    arguments = ["-m", model, "-f", text, "-o", output, "-c", n_ctx, "--chunks", n_chunks, "-t", 2]
    oracle.run("llama-imatrix", *arguments, "--no-ppl", *options)


def test_diagonals_of_chosen_chunks_may_be_of_rounded_products(text: Path, tmp_path: Path) -> None:
    options = {"n_ctx": 64, "n_chunks": 4, "threads": 1, "imatrix_only": True}
    calibrate_model(model_path(), [text], tmp_path / "exact", **options)
    calibrate_model(model_path(), [text], tmp_path / "chosen", diagonal_chunks=4, **options)  # all of them
    exact, chosen = (Calibration.read(tmp_path / name) for name in ("exact", "chosen"))
    apart = [np.abs(chosen.diagonal(name) / exact.diagonal(name) - 1).max() for name in exact.matrices]
    assert max(apart) < 0.05
    assert (max(apart) > 0) == _core.HAS_BF16_PRODUCTS


def test_an_imatrix_is_read_for_its_diagonal(dense: Path, text: Path, tmp_path: Path) -> None:
    calibrate_model(dense, [text], tmp_path / "stats", imatrix=tmp_path / "i.gguf", n_ctx=64, n_chunks=4)
    stats, imatrix = Calibration.read(tmp_path / "stats"), Calibration.read(tmp_path / "i.gguf")
    assert sorted(imatrix.matrices) == sorted(stats.matrices)
    assert (imatrix.sha256, imatrix.n_tokens) == (None, 256)
    for name in stats.matrices:
        np.testing.assert_array_equal(imatrix.diagonal(name), stats.diagonal(name))
        np.testing.assert_array_equal(imatrix.counts(name), stats.counts(name))
        assert imatrix.hessian(name) is None


def test_experts_that_no_token_entered_have_no_hessians(text: Path, tmp_path: Path) -> None:
    path = WITH_SHUT_EXPERTS.write(tmp_path / "model.gguf")
    calibrate_model(path, [text], tmp_path / "stats", n_ctx=64, n_chunks=4)
    stats = Calibration.read(tmp_path / "stats")
    for name in ("blk.0.ffn_gate_exps.weight", "blk.0.ffn_down_exps.weight"):
        counts = stats.counts(name)
        assert counts.sum() == 2 * 256
        unused = int(np.flatnonzero(counts == 0)[0])
        assert stats.hessian(name, unused) is None
        assert (stats.diagonal(name)[unused] == 1).all()


def test_threads_and_memory_do_not_change_the_file(experts: Path, text: Path, tmp_path: Path) -> None:
    options = {"n_ctx": 32, "n_chunks": 130}
    report = calibrate_model(experts, [text], tmp_path / "a", threads=1, **options)
    largest = 4 * (96 + 96 * 96)
    assert report.sums_bytes > 4 * largest
    for name, memory, threads in [("b", None, 2), ("c", largest, 2), ("d", 3 * largest, 1)]:
        calibrate_model(experts, [text], tmp_path / name, memory=memory, threads=threads, **options)
        assert (tmp_path / name).read_bytes() == (tmp_path / "a").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c", "d"]


def test_random_tokens_have_their_share_of_the_hessians_and_none_of_the_squares(
    dense: Path, text: Path, tmp_path: Path
) -> None:
    for name, random in (("text", 0), ("both", 0.25), ("mostly", 0.75)):
        path = tmp_path / name
        calibrate_model(
            dense, [text], path, imatrix=path.with_suffix(".gguf"), n_ctx=64, n_chunks=4, random=random
        )
    of_text, both, mostly = (Calibration.read(tmp_path / name) for name in ("text", "both", "mostly"))
    with LlamaModel(dense) as model:
        assert [t.n_chunks for t in mostly.origin.texts] == [4, 3]
        assert len(model.vocabulary.ordinary_tokens()) > model.n_vocab / 2
        assert model.vocabulary.bos not in model.vocabulary.ordinary_tokens()
    for name in of_text.matrices:
        assert both.counts(name) == of_text.counts(name) == [256]
        np.testing.assert_array_equal(both.diagonal(name), of_text.diagonal(name))
        assert both.hessian(name).trace() != of_text.hessian(name).trace()
    for name in ("both", "mostly"):
        assert (tmp_path / f"{name}.gguf").read_bytes() == (tmp_path / "text.gguf").read_bytes()
    first = "blk.0.attn_q.weight"
    random_part = (both.hessian(first) - 0.75 * of_text.hessian(first)) / 0.25
    assert np.linalg.eigvalsh(random_part).min() > -1e-4 * np.trace(random_part)
    with pytest.raises(ConfigError, match="random: expected a number from 0 to below 1"):
        calibrate_model(dense, [text], tmp_path / "x", random=1)


def test_a_quantized_model_is_calibrated_too(dense: Path, text: Path, tmp_path: Path) -> None:
    quantize_model(dense, tmp_path / "q4_0.gguf", make_mode({"mode": "q4_0"}))
    for name, model in (("source", dense), ("q4_0", tmp_path / "q4_0.gguf")):
        calibrate_model(model, [text], tmp_path / name, n_ctx=64, n_chunks=8)
    source, q4_0 = (Calibration.read(tmp_path / name) for name in ("source", "q4_0"))
    assert q4_0.matrices == source.matrices
    before, after = (x.hessian("blk.0.attn_q.weight") for x in (source, q4_0))
    assert 0.001 < np.abs(after - before).sum() / np.abs(before).sum() < 0.5


def test_a_model_whose_logits_are_not_finite_is_refused(text: Path, tmp_path: Path) -> None:
    """What enters its matrices is finite; only what it says is not."""

    def spoil(name: str, x: np.ndarray) -> np.ndarray:
        return x * np.nan if name == "output.weight" else x

    path = Model(n_embd=64, n_ff=96, n_layer=1, change=spoil).write(tmp_path / "nan.gguf")
    with pytest.raises(
        ModelFileError, match=f"^{path}: not finite logits in its first tokens: the model is broken$"
    ):
        calibrate_model(path, [text], tmp_path / "stats", n_ctx=64, n_chunks=4)
    assert not (tmp_path / "stats").exists()


@pytest.mark.ci
def test_the_command_says_what_it_did(dense: Path, text: Path, tmp_path: Path) -> None:
    stats = tmp_path / "stats"
    arguments = ["calibrate", dense, "--text", text, "-o", stats, "--ctx", 64, "--chunks", 8]
    told = run(*arguments, "--imatrix", tmp_path / "i.gguf", "--memory", "1MB", "--json")
    assert told.returncode == 0, told.stderr
    result = json.loads(told.stdout)
    assert (result["n_tokens"], result["n_ctx"], result["output_bytes"]) == (640, 64, stats.stat().st_size)
    told = run(*arguments)
    assert (told.returncode, told.stdout) == (1, "")
    assert "exists; --force replaces it" in told.stderr
    told = run(*arguments, "--force")
    assert "640 in chunks of 64" in told.stdout
    assert run(*arguments, "--force", "--weight", 1, "--weight", 2).returncode == 2


def test_statistics_of_another_model_or_of_too_few_tokens(
    dense: Path, experts: Path, text: Path, tmp_path: Path
) -> None:
    calibrate_model(dense, [text], tmp_path / "stats", n_ctx=64, n_chunks=3)
    stats, other = Calibration.read(tmp_path / "stats"), ModelFile(experts)
    stats.check_model(ModelFile(dense), ModelFile(dense).sha256())
    with pytest.raises(ModelFileError, match=r"made from another model than .*experts\.gguf"):
        stats.check_model(other, other.sha256())
    assert stats.has_hessian("blk.0.attn_q.weight")
    assert not stats.has_hessian("blk.1.ffn_down.weight")
    why = stats.why_no_hessian("blk.1.ffn_down.weight")
    assert re.fullmatch(r"192 tokens are too few for rows of \d+; calibrate with 5 chunks of 64 or more", why)
