"""Rows that make up for each other: the formula, what it is worth, and what files say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.calibration import Calibration
from pyquant.errors import ModelFileError
from pyquant.inspect.histogram import count_codes
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import EMBEDDINGS
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding import output_side
from pyquant.rounding.equalize.equalize_model import equalize_model
from pyquant.rounding.output_side import round_rows, row_factor
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.dampening import ON_ITS_OWN, ROWS
from pyquant.schemes.settings import make_mode
from tests.support.models import Model
from tests.twins.scale_search import fma

N_ROWS, N_IN = 160, 96


def hessian(n: int, seed: int) -> NDArray[np.float32]:
    """Hessian statistics in which a few directions are most."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(4 * n, n)) @ (rng.normal(size=(n, n)) * np.exp(-np.arange(n) / (n / 6))[:, None])
    return (x.T @ x / len(x)).astype(np.float32)


@pytest.fixture(scope="module")
def matrix() -> NDArray[np.float32]:
    return np.random.default_rng(3).normal(size=(N_ROWS, N_IN)).astype(np.float32)


@pytest.fixture(scope="module")
def encoder() -> _core.Encoder:
    together = _core.columns_together(int(Type.Q4_0))
    return _core.gptq_encoder(
        int(Type.Q4_0), _core.factorize(hessian(N_IN, 5), dampening=0.03, together=together)
    )


def test_the_kld_is_a_sum_over_rows() -> None:
    gradients = hessian(N_ROWS, 4)
    rows = row_factor(gradients, 0.1)
    damped = gradients + 0.1 * np.trace(gradients) / N_ROWS * np.eye(N_ROWS)
    lower = rows.upper.T.astype(np.float64)
    np.testing.assert_array_equal(np.diagonal(lower), 1)
    np.testing.assert_array_equal(np.triu(lower, 1), 0)
    ordered = damped[np.ix_(rows.order, rows.order)]
    assert (np.diff(np.diagonal(ordered)) <= 0).all()
    inverse = np.linalg.inv(lower)
    diagonal = inverse.T @ ordered @ inverse  # G = L^T D L
    off = diagonal - np.diag(np.diagonal(diagonal))
    assert np.abs(off).max() < 1e-5 * np.abs(ordered).max()


@pytest.mark.parametrize(
    ("n_rows", "steps", "step"), [(N_ROWS, 24, 32), (131, 24, 32), (32, 24, 32), (7, 24, 32), (N_ROWS, 2, 64)]
)
def test_rows_are_rounded_as_the_formula_has_it(
    n_rows: int,
    steps: int,
    step: int,
    matrix: NDArray[np.float32],
    encoder: _core.Encoder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output_side, "STEPS", steps)
    assert output_side.together(n_rows) == step
    matrix = matrix[:n_rows]
    rows = row_factor(hessian(n_rows, 4), 0.1, threads=2)
    assert sorted(rows.order[:n_rows]) == list(range(n_rows))
    stored, values = round_rows(matrix, rows, encoder, threads=2)
    errors, order = np.zeros_like(matrix), rows.order[:n_rows]
    for begin in range(0, n_rows, step):
        now = order[begin : begin + step]
        wanted = matrix[now]
        for j in range(begin):
            wanted = fma(rows.upper[j, begin : begin + len(now), None], errors[order[j]], wanted)
        for row, weights in zip(now, wanted):  # each by itself
            made = encoder.encode(np.ascontiguousarray(weights[None]))
            np.testing.assert_array_equal(stored[row], made[0])
            np.testing.assert_array_equal(values[row], encoder.decode(made, n_per_row=N_IN)[0])
            errors[row] = matrix[row] - values[row]


def test_rows_that_are_filled_up_change_no_dampening() -> None:
    gradients = hessian(131, 4)
    alone = row_factor(gradients, 0.1)
    damped = gradients + 0.1 * np.trace(gradients) / 131 * np.eye(131, dtype=np.float32)
    order = alone.order[:131]
    np.testing.assert_allclose(alone.hessian[:131, :131], damped[np.ix_(order, order)], rtol=1e-5, atol=1e-7)


def test_a_factor_of_other_rows_is_refused(matrix: NDArray[np.float32], encoder: _core.Encoder) -> None:
    with pytest.raises(ValueError, match="a factor of as many"):
        round_rows(matrix[:90], row_factor(hessian(N_ROWS, 4), 0.1), encoder)


def test_a_weight_that_is_too_large_is_named_by_its_place(
    matrix: NDArray[np.float32], encoder: _core.Encoder
) -> None:
    large = matrix.copy()
    large[70, 5] = 9e6
    with pytest.raises(_core.WeightError) as refused:
        round_rows(large, row_factor(hessian(N_ROWS, 4), 0.1), encoder)
    assert refused.value.index == 70 * N_IN + 5


def test_errors_that_matter_become_smaller(matrix: NDArray[np.float32], encoder: _core.Encoder) -> None:
    gradients, inputs = hessian(N_ROWS, 4).astype(np.float64), hessian(N_IN, 5).astype(np.float64)

    def kld(values: NDArray[np.float32]) -> float:
        errors = (matrix - values).astype(np.float64)
        return float(np.einsum("ij,ij->", gradients @ errors @ inputs, errors))

    alone = encoder.decode(encoder.encode(matrix), n_per_row=N_IN)
    _, together = round_rows(matrix, row_factor(gradients.astype(np.float32), 0.1), encoder)
    assert kld(together) < 0.7 * kld(alone)


def test_gradients_that_know_nothing_change_nothing(
    matrix: NDArray[np.float32], encoder: _core.Encoder
) -> None:
    for gradients in (np.eye(N_ROWS, dtype=np.float32), np.zeros((N_ROWS, N_ROWS), np.float32)):
        stored, _ = round_rows(matrix, row_factor(gradients, 1.0), encoder)
        np.testing.assert_array_equal(stored, encoder.encode(matrix))


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory, text: Path) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("known")
    model = Model(n_embd=64, n_ff=96, n_layer=2, n_head=4, n_head_kv=2, n_vocab=300).write(folder / "m.gguf")
    calibrate_model(model, [text], folder / "stats", n_ctx=64, n_chunks=16, threads=1, output_side=8)
    return model, folder / "stats"


@pytest.mark.parametrize("error_propagation", [None, 16])
def test_files_do_not_depend_on_threads(
    known: tuple[Path, Path], error_propagation: int | None, tmp_path: Path
) -> None:
    model, stats = known
    mode = make_mode({"mode": "ggml:IQ4_NL", "hessian": stats, "error_propagation": error_propagation})
    files = [tmp_path / f"{threads}.gguf" for threads in (1, 3)]
    results = [quantize_model(model, file, mode, threads=int(file.stem)) for file in files]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert ModelFile(files[0]).get("pyquant.row_dampening") == f"{ROWS:g}"
    assert [t.squared_error for t in results[0].tensors] == [t.squared_error for t in results[1].tensors]


def test_results_measure_what_was_written(known: tuple[Path, Path], tmp_path: Path) -> None:
    model, stats = known
    mode = make_mode({"mode": "ggml:Q5_1", "hessian": stats, "tensors": "ffn"})
    done = quantize_model(model, tmp_path / "out.gguf", mode, threads=2)
    written = {tensor.name: tensor for tensor in ModelFile(tmp_path / "out.gguf").tensors}
    for before, result in zip(ModelFile(model).tensors, done.tensors):
        after = written[before.name].weights()
        error = np.square(before.weights().astype(np.float64) - after).sum()
        assert (result.squared_error is not None) == ("ffn_" in before.name and "norm" not in before.name)
        assert result.squared_error is None or result.squared_error == pytest.approx(error, rel=1e-6)


def test_codes_are_counted_of_what_is_written(known: tuple[Path, Path], tmp_path: Path) -> None:
    model, stats = known
    mode = make_mode({"mode": "ggml:Q4_0", "hessian": stats})
    quantize_model(model, tmp_path / "out.gguf", mode)
    through, written = count_codes(model, mode), count_codes(tmp_path / "out.gguf")
    assert through.to_json()["totals"] == written.to_json()["totals"]


def test_a_hessian_that_is_none_is_named(
    known: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, stats = known
    of_file = Calibration.output_hessian

    def indefinite(calibration: Calibration, name: str) -> NDArray[np.float32]:
        of_rows = of_file(calibration, name)
        assert of_rows is not None
        if name == EMBEDDINGS:
            return of_rows
        return (of_rows + 10 * np.trace(of_rows) * (1 - np.eye(len(of_rows)))).astype(np.float32)

    monkeypatch.setattr(Calibration, "output_hessian", indefinite)
    with pytest.raises(ModelFileError, match=r"output-side Hessian of blk\.\d\.\w+\.weight is not positive"):
        quantize_model(model, tmp_path / "out.gguf", make_mode({"mode": "ggml:Q4_0", "hessian": stats}))
    assert not (tmp_path / "out.gguf").exists()


def test_embeddings_are_rounded_by_what_their_errors_do(known: tuple[Path, Path], tmp_path: Path) -> None:
    """Columns of rows that are looked up absorb each other's errors, by the output-side Hessian."""
    model, stats = known
    calibration, files = Calibration.read(stats), {}
    assert calibration.looks_up(EMBEDDINGS)
    for by in (True, False):
        mode = make_mode({"mode": "ggml:Q4_0", "hessian": stats, "output_side": by, "pure": True})
        done = quantize_model(model, tmp_path / f"{by}.gguf", mode)
        files[by] = next(t for t in ModelFile(tmp_path / f"{by}.gguf").tensors if t.name == EMBEDDINGS)
        (result,) = (tensor for tensor in done.tensors if tensor.name == EMBEDDINGS)
        assert (result.without_gptq is None) == by
    gradients = calibration.output_hessian(EMBEDDINGS)
    factor = _core.factorize(gradients, dampening=ON_ITS_OWN, together=_core.columns_together(int(Type.Q4_0)))
    weights = next(t for t in ModelFile(model).tensors if t.name == EMBEDDINGS).weights()
    stored = _core.gptq_encoder(int(Type.Q4_0), factor).encode(weights, np.ones(weights.shape[1], np.float32))
    assert bytes(files[True].data()) == stored.tobytes()
    costs = {by: np.vdot((file.weights() - weights) @ gradients, file.weights() - weights)
             for by, file in files.items()}  # fmt: skip
    assert costs[True] < 0.8 * costs[False]


def test_tied_embeddings_are_rounded_as_output_matrix(text: Path, tmp_path: Path) -> None:
    model = Model(n_layer=1, tied=True).write(tmp_path / "model.gguf")
    calibrate_model(
        model, [text], tmp_path / "stats", n_ctx=64, n_chunks=4, output_side=2, process_output=True
    )
    calibration = Calibration.read(tmp_path / "stats")
    assert not calibration.looks_up(EMBEDDINGS)
    assert calibration.has_hessian(EMBEDDINGS)


def test_ecsq_codes_have_rows_of_their_own(known: tuple[Path, Path], tmp_path: Path) -> None:
    model, stats = known
    mode = make_mode({"mode": "ecsq", "hessian": stats, "step": 0.05})
    quantize_model(model, tmp_path / "out.gguf", mode, threads=1)
    assert ModelFile(tmp_path / "out.gguf").get("pyquant.row_dampening") is None


def test_gradients_follow_scaled_channels(known: tuple[Path, Path], tmp_path: Path) -> None:
    model, stats = known
    equalize_model(model, stats, tmp_path / "equalized.gguf", hessian_out=tmp_path / "stats", threads=1)
    before, after = Calibration.read(stats), Calibration.read(tmp_path / "stats")
    old, new = ({t.name: t for t in ModelFile(path).tensors} for path in (model, tmp_path / "equalized.gguf"))
    n_changed = 0
    for layer in range(2):
        for kind in ("ffn_up", "attn_v", "ffn_gate"):
            name = f"blk.{layer}.{kind}.weight"
            with np.errstate(divide="ignore", invalid="ignore"):
                columns = new[name].weights() / old[name].weights()
            scale = np.nanmedian(columns, axis=1)  # of rows, beside columns that were scaled as well
            expected = before.output_hessian(name) / scale[:, None] / scale
            np.testing.assert_array_equal(after.output_hessian(name), expected)
            n_changed += int((scale != 1).sum())
    assert n_changed > 0
