"""What rounding leaves of an imatrix's error lies above what no choice of codes, and no code, goes below."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis import rate_bound
from pyquant import data
from pyquant.models.tensor_type import TensorType

RNG = np.random.default_rng(5)


class Known:
    """Statistics of one matrix."""

    def __init__(self, hessian: np.ndarray, of_rows: np.ndarray | None) -> None:
        self._hessian, self._of_rows = hessian, of_rows

    def hessian(self, name: str) -> np.ndarray:
        return self._hessian

    def has_output_hessian(self, name: str) -> bool:
        return self._of_rows is not None

    def output_hessian(self, name: str) -> np.ndarray | None:
        return self._of_rows


class Matrix:
    """A tensor of floats."""

    name = "blk.0.attn_q.weight"

    def __init__(self, weights: np.ndarray) -> None:
        self.weights = lambda: weights


def neighbors(n: int, share: float) -> np.ndarray:
    """A Hessian of inputs that each tell of the next ones."""
    return np.float32(share) ** np.abs(np.subtract.outer(np.arange(n), np.arange(n))).astype(np.float32)


def costs(weights: np.ndarray, known: Known, type_: TensorType = TensorType.Q8_0) -> list[float]:
    return rate_bound.costs_of(Matrix(weights), known, type_).tolist()  # type: ignore[arg-type] # stand-ins


def test_independent_inputs() -> None:
    """H of 1: a ball errs by 1.53 dB less than a cube; 8.5 bits by Shannon."""
    weights = RNG.standard_normal((64, 256), np.float32)
    weights[:, ::32] = 4  # the largest of each block, so that all have one step
    dampened = 1 + rate_bound.ON_ITS_OWN
    power = (
        weights.size * np.sqrt(31 / 16) * np.exp(-1 / 16)
    )  # of every other block; in the mean of samples of 16
    plain, gptq, with_rows, of_steps, of_code = costs(weights, Known(np.eye(256, dtype=np.float32), None))
    assert gptq == with_rows < plain  # by its scales
    assert 10 * np.log10(of_steps / plain) == pytest.approx(-1.53, abs=0.2)
    assert of_code == pytest.approx(dampened**2 * power * 4**-8.5, rel=0.05)


@pytest.mark.parametrize("type_", ["Q8_0", "Q4_K", "IQ4_NL"])
def test_what_is_left_stays_above_the_bounds(type_: str) -> None:
    weights = RNG.standard_normal((128, 256), np.float32)
    known = Known(neighbors(256, 0.9), neighbors(128, 0.5))
    plain, gptq, with_rows, of_steps, of_code = costs(weights, known, TensorType[type_])
    assert plain > gptq > with_rows > of_steps > of_code
    assert of_steps / with_rows > 0.5  # and they are near


def test_the_cost_is_of_rows_and_columns() -> None:
    error = RNG.standard_normal((8, 32), np.float32)
    metric, of_rows = neighbors(32, 0.9).astype(float), neighbors(8, 0.5).astype(float)
    whole = error.ravel() @ np.kron(of_rows, metric) @ error.ravel()
    assert rate_bound.cost(error, metric, of_rows) == pytest.approx(whole)


@pytest.mark.ci
def test_a_line_for_each_kind(
    stats_of_both_sides: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["", str(data.model_path()), str(stats_of_both_sides), "--every", "3"])
    rate_bound.main()
    *lines, total = capsys.readouterr().out.splitlines()[1:]
    assert {line.split()[0] for line in lines} >= {"attn_q", "attn_output", "ffn_down"}
    assert total.split()[0] == "all"
    for line in (*lines, total):
        gptq, with_rows, of_steps, of_code = map(float, line.split()[1:])
        assert 1 > gptq >= with_rows >= of_steps >= of_code > 0
