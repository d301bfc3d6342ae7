"""Mode uniform: integer codes of one step in a matrix, and what its step follows from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.calibration import Calibration
from pyquant.calibration.sensitivity_file import Sensitivity
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.unpack import unpack_model
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.factors import matrices
from pyquant.rounding.quantize_model import quantize_model
from pyquant.rounding.row_weights import RowWeights
from pyquant.rounding.to_pqz import quantize_to_pqz
from tests.support.command import run
from tests.support.factors import factor_of
from tests.support.models import EXPERTS, F32, ODD_ROWS, Model
from tests.support.modes import STEP, ecsq
from tests.support.oracle import Oracle
from tests.support.outputs import output_error, weights

BLOCK = np.dtype([("scale", "<f2"), ("codes", "i1", 32)])


def blocks(path: Path) -> dict[str, np.ndarray]:
    """(n_blocks,) of every Q8_0 tensor."""
    tensors = [tensor for tensor in ModelFile(path).tensors if tensor.type is Type.Q8_0]
    return {tensor.name: np.frombuffer(tensor.data(), BLOCK) for tensor in tensors}


def steps(path: Path) -> dict[str, float]:
    return {name: float(found["scale"][0]) for name, found in blocks(path).items()}


def mean_diagonal(stats: Path, name: str, expert: int = 0) -> float:
    known = Calibration.read(stats)
    return factor_of(known, name, expert, dampening=ecsq(stats).dampening, together=32).mean_diagonal


@pytest.fixture
def made(generated: Callable[[str], Path], stats_of, tmp_path: Path) -> Callable[..., Path]:
    def make(model: str, step: float = STEP, stats: Path | None = None, **settings: object) -> Path:
        out = tmp_path / f"{len(list(tmp_path.iterdir()))}.gguf"
        quantize_model(generated(model), out, ecsq(stats or stats_of(model), step, **settings))
        return out

    return make


def rows_count(model: Path, stats: Path, name: str, expert: int = 0) -> np.ndarray | float:
    """Weights of the errors of each row, or 1."""
    source = ModelFile(model)
    (tensor,) = (tensor for tensor in source.tensors if tensor.name == name)
    matrix = [*matrices(tensor, (32, 32))][expert]
    count = RowWeights(source, Calibration.read(stats))
    rows = count.of(matrix)
    return count.whole(matrix) * (1.0 if rows is None else rows)


@pytest.mark.parametrize("model", [F32, ODD_ROWS])
def test_a_row_has_one_step_and_it_is_the_formulas(made, generated, stats_of, model: str) -> None:
    found = blocks(made(model))
    known = set(found) & set(Calibration.read(stats_of(model)).matrices)
    assert known
    for name in known:
        rows = rows_count(generated(model), stats_of(model), name)
        wanted = (STEP / np.sqrt(rows * mean_diagonal(stats_of(model), name))).astype(np.float16)
        scales = found[name]["scale"].reshape(-1, len(found[name]) // np.size(wanted))
        assert (scales == wanted.reshape(-1, 1)).all()


def test_experts_have_steps_of_their_own(made, generated, stats_of) -> None:
    found = blocks(made(EXPERTS))
    for name in ("blk.0.ffn_up_exps.weight", "blk.0.ffn_down_exps.weight"):
        for expert, scales in enumerate(found[name]["scale"].reshape(3, -1)):
            d = mean_diagonal(stats_of(EXPERTS), name, expert)
            rows = rows_count(generated(EXPERTS), stats_of(EXPERTS), name, expert)
            wanted = np.unique((STEP / np.sqrt(rows * d)).astype(np.float16))
            np.testing.assert_array_equal(np.unique(scales), wanted)


def test_sensitive_tensors_get_smaller_steps(made, tmp_path: Path) -> None:
    (tmp_path / "equal.toml").write_text("[sensitivity]\nffn_down = 1.0\n")
    (tmp_path / "s.toml").write_text("[sensitivity]\nffn_down = 4.0\nattn_v = 0.25\n")
    plain, weighted = (
        steps(made(F32, sensitivity=str(tmp_path / f"{name}.toml"))) for name in ("equal", "s")
    )
    factors = {"ffn_down": 1 / 2, "attn_v": 2}
    for name in plain:
        kind = name.split(".")[-2]
        assert weighted[name] == pytest.approx(plain[name] * factors.get(kind, 1), rel=2e-3)


def test_gptq_errs_less_at_the_same_step(made, generated, stats_of) -> None:
    stats, source = Calibration.read(stats_of(F32)), weights(generated(F32))
    gptq = made(F32)
    rounded = dict(weights(gptq))
    for name, found in blocks(gptq).items():
        shape = source[name].shape
        step = found["scale"].astype(np.float32).repeat(32).reshape(shape)
        rounded[name] = (np.round(source[name] / step) * step).astype(np.float32)
    errors = [output_error(stats, source, y) for y in (weights(gptq), rounded)]
    assert errors[0] < 0.9 * errors[1]


def test_an_importance_matrix_gives_steps_without_gptq(made, generated, stats_of) -> None:
    imatrix = stats_of(F32).with_name("imatrix.gguf")
    path, source = made(F32, stats=imatrix), weights(generated(F32))
    diagonals = Calibration.read(imatrix)
    for name, y in weights(path).items():
        if name in diagonals.matrices:
            step = np.float16(STEP / np.sqrt(diagonals.diagonal(name).mean()))
            np.testing.assert_array_equal(y, np.round(source[name] / np.float32(step)) * np.float32(step))


def test_weights_that_leave_int8_double_the_step_of_their_block(tmp_path: Path, text: Path) -> None:
    def change(name: str, x: np.ndarray) -> np.ndarray:
        if name == "blk.0.attn_q.weight":
            x[3, 40] = 30
        return x

    source = Model(change=change).write(tmp_path / "model.gguf")
    calibrate_model(source, [text], tmp_path / "stats", n_ctx=64, n_chunks=16)
    (tmp_path / "equal.toml").write_text("[sensitivity]\nattn_q = 1.0\n")
    mode = ecsq(tmp_path / "stats", sensitivity=str(tmp_path / "equal.toml"))
    quantize_model(source, tmp_path / "out.gguf", mode)
    found = blocks(tmp_path / "out.gguf")["blk.0.attn_q.weight"].reshape(64, 2)
    times = found["scale"] / found["scale"].min(axis=1, keepdims=True)
    wide = float(times[3, 1])
    assert wide > 1
    assert np.log2(wide) % 1 == 0
    times[3, 1] = 1
    assert (times == 1).all()
    assert np.abs(found["codes"].astype(int)).max() < 127
    step = float(found["scale"][3, 1])
    assert weights(tmp_path / "out.gguf")["blk.0.attn_q.weight"][0, 3, 40] == pytest.approx(30, abs=step)


def test_no_step_is_too_small(made, generated) -> None:
    source, errors = weights(generated(F32)), []
    for step in (1e-3, 6e-8):
        found = weights(made(F32, step, tensors="blk"))
        errors.append(sum(float(((found[name] - x) ** 2).sum()) for name, x in source.items()))
    assert errors[1] < errors[0]


def test_an_expert_that_no_token_met_is_like_the_others(tmp_path: Path, text: Path) -> None:
    def change(name: str, x: np.ndarray) -> np.ndarray:
        if name.endswith("ffn_gate_inp.weight"):
            x[2] = x[1] = x[0]
        return x

    model = Model(n_embd=64, n_ff=64, n_layer=1, n_expert=3, change=change)  # of equals two are chosen
    source = model.write(tmp_path / "model.gguf")
    calibrate_model(source, [text], tmp_path / "stats", n_ctx=64, n_chunks=16)
    stats, name = Calibration.read(tmp_path / "stats"), "blk.0.ffn_down_exps.weight"
    counts = stats.counts(name)
    assert list(counts > 0).count(False) == 1
    quantize_model(source, tmp_path / "out.gguf", ecsq(tmp_path / "stats"))
    found = blocks(tmp_path / "out.gguf")[name]["scale"].reshape(3, -1)[:, 0].astype(float)
    mean = np.average(stats.diagonal(name), axis=0, weights=counts).mean()
    count = rows_count(source, tmp_path / "stats", name, int(np.flatnonzero(counts == 0)[0]))
    assert found[counts == 0] == pytest.approx(STEP / np.sqrt(mean * count), rel=1e-3)


def test_tensors_without_statistics_become_q6_k_or_q8_0(generated, stats_of, tmp_path: Path) -> None:
    types = {}
    for model in (EXPERTS, F32):
        report = quantize_model(generated(model), tmp_path / "none", ecsq(stats_of(model)), dry_run=True)
        types[model] = {tensor.name: tensor.type for tensor in report.tensors}
    assert types[EXPERTS]["token_embd.weight"] == types[EXPERTS]["output.weight"] == "Q6_K"
    assert types[F32]["token_embd.weight"] == "Q8_0"  # rows of 64


@pytest.mark.parametrize("model", [F32, EXPERTS])
def test_packed_and_unpacked_it_is_the_same_file(made, generated, stats_of, model, tmp_path: Path) -> None:
    stock = made(model)
    quantize_to_pqz(generated(model), tmp_path / "out.pqz", ecsq(stats_of(model)))
    unpack_model(tmp_path / "out.pqz", tmp_path / "unpacked.gguf")
    assert (tmp_path / "unpacked.gguf").read_bytes() == stock.read_bytes()
    assert (tmp_path / "out.pqz").stat().st_size < stock.stat().st_size
    assert not list(tmp_path.glob(".*"))


@pytest.mark.oracle
@pytest.mark.parametrize("model", [F32, EXPERTS, ODD_ROWS])
def test_stock_llama_cpp_runs_it(made, oracle: Oracle, text: Path, model: str) -> None:
    arguments = ["-m", made(model), "-f", text, "-c", 64, "--chunks", 2, "-t", 1]
    assert "nan" not in oracle.prints("Final estimate: PPL = [0-9.]+", "llama-perplexity", *arguments)


@pytest.mark.ci
def test_sensitivities_are_measured_and_written(generated, stats_of, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.toml"
    arguments = ["sensitivity", generated(ODD_ROWS), "--hessian", stats_of(ODD_ROWS), "--text", text]
    told = run(*arguments, "--ctx", 32, "--chunks", 2, "--output", out)
    assert told.returncode == 0, told.stderr
    names = set(Sensitivity.read(out).by_tensor)
    kinds = {name.split(".")[2] for name in names if name.startswith("blk.")}
    assert kinds == {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up"}
    assert {name for name in names if not name.startswith("blk.")} == {"token_embd.weight"}
    told = run(*arguments, "--output", out)
    assert (told.returncode, told.stdout) == (1, "")
    assert "exists" in told.stderr


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("x = 1\n", r"expected a table \[tensors\]"),
        ("version = 3\n[tensors]\n", "version 3, this pyquant reads 2"),
        ("version = 2\n[tensors]\na = { sensitivity = 1 }\n", "a: expected sensitivity, measured, error"),
        ("[sensitivity]\nffn_up = -1\n", "ffn_up: expected a number"),
        ("[sensitivity]\nffn_up = 'a'\n", "ffn_up: expected a number"),
    ],
)
def test_sensitivities_that_are_none(generated, stats_of, content, says, tmp_path: Path) -> None:
    from pyquant.errors import ConfigError

    (tmp_path / "s.toml").write_text(content)
    mode = ecsq(stats_of(F32), sensitivity=str(tmp_path / "s.toml"))
    with pytest.raises(ConfigError, match=says):
        quantize_model(generated(F32), tmp_path / "out.gguf", mode)
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize("error_propagation", [None, 16])
def test_shards_give_what_the_whole_gives(text: Path, tmp_path: Path, error_propagation: int | None) -> None:
    model = Model(n_layer=2)
    whole = model.write(tmp_path / "whole.gguf")
    split = model.write(tmp_path / "split.gguf", tensors_per_shard=5)
    written = []
    for source in (whole, split):
        stats = tmp_path / f"{source.stem}.stats"
        calibrate_model(source, [text], stats, n_ctx=64, n_chunks=16)
        packed = tmp_path / f"{source.stem}.pqz"
        quantize_to_pqz(source, packed, ecsq(stats, error_propagation=error_propagation))
        written.append({tensor.name: tensor.weights() for tensor in ModelFile(packed).tensors})
    for name, expected in written[0].items():
        np.testing.assert_array_equal(written[1][name], expected)
