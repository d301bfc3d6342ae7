"""Check what a matrix changes by when its inputs, or the stream behind it, have changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyquant import _core
from pyquant.calibration.routed_tokens import RoutedTokens
from pyquant.rounding.corrected_target import CorrectedTarget
from pyquant.rounding.correction import Correction, ExpertCorrections
from pyquant.schemes.dampening import CORRECTION

DAMPENING = 0.01


def random_inputs(n_tokens: int = 500, n_in: int = 24) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(n_tokens, n_in)) @ rng.normal(size=(n_in, n_in))
    return x.astype(np.float32), (x + 0.2 * x[:, ::-1] + 0.1 * rng.normal(size=x.shape)).astype(np.float32)


def correction(original: np.ndarray, changed: np.ndarray, dampening: float) -> np.ndarray:
    sums = Correction(original.shape[1])
    sums.add(original, changed)
    return sums.result(dampening)


def assert_best(matrix: np.ndarray, inputs: np.ndarray, wanted: np.ndarray) -> None:
    """Check that no matrix does much better, damped; that of float32 differs by roundings alone."""
    inputs, power = inputs.astype(np.float64), np.square(inputs, dtype=np.float64).sum() / inputs.shape[1]
    damped = inputs.T @ inputs + DAMPENING * power * np.eye(inputs.shape[1])
    best = np.linalg.solve(damped, inputs.T @ wanted).T

    def loss(of: np.ndarray) -> float:
        return float(np.square(inputs @ of.T - wanted).sum() + DAMPENING * power * np.square(of).sum())

    assert loss(best) <= loss(matrix.astype(np.float64)) <= loss(best) * (1 + 1e-4)
    if not _core.HAS_BF16_PRODUCTS:
        np.testing.assert_allclose(matrix, best, rtol=1e-4, atol=1e-5)


@pytest.fixture(params=[False, True], ids=["F32", "as it is"], autouse=True)
def products(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "HAS_BF16_PRODUCTS", request.param and _core.HAS_BF16_PRODUCTS)


def test_the_correction_is_the_best_there_is() -> None:
    original, changed = random_inputs()
    assert_best(correction(original, changed, DAMPENING), changed, original - changed)


def test_the_stream_is_brought_back_as_far_as_it_can_be() -> None:
    x, y = random_inputs()
    rng = np.random.default_rng(7)
    weights = rng.normal(size=(7, x.shape[1])).astype(np.float32)
    now = rng.normal(size=(len(x), 7)).astype(np.float32)
    stream = now + 0.1 * y @ rng.normal(size=(y.shape[1], 7)).astype(np.float32)
    stream[0] *= 1e6  # a token as large as all others, and more, counts like any other
    sums = CorrectedTarget(weights)
    sums.add(x, y, stream, now)
    behind = stream + x @ weights.T
    size = np.linalg.norm(behind, axis=1, keepdims=True).astype(np.float64)
    assert_best(sums.result(DAMPENING), y / size, (behind - now - y @ weights.T) / size)


def test_dampening_keeps_the_correction_small() -> None:
    original, changed = random_inputs()
    sizes = [np.linalg.norm(correction(original, changed, dampening)) for dampening in (0, 0.1, 10)]
    assert sizes[0] > sizes[1] > sizes[2]
    assert not correction(changed, changed, 0.1).any()
    assert not correction(np.zeros_like(changed), np.zeros_like(changed), 0).any()  # dead inputs


@pytest.mark.parametrize(("n", "n_moved"), [(1, 1), (3, 40), (70, 7), (300, 130)])
def test_equations_are_solved(n: int, n_moved: int) -> None:
    rng = np.random.default_rng(n)
    y, moved = rng.normal(size=(2 * n, n)), rng.normal(size=(n_moved, n)).astype(np.float32)
    hessian = np.tril(y.T @ y).astype(np.float32)
    whole = hessian.astype(np.float64) + np.tril(hessian, -1).T
    expected = np.linalg.solve(whole + 0.1 * np.trace(whole) / n * np.eye(n), moved.T.astype(np.float64)).T
    hessian[np.triu_indices(n, 1)] = np.nan  # not read
    _core.solve_damped(hessian, moved, 0.1, n_threads=2)
    np.testing.assert_allclose(moved, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_equations_have_the_same_solution_by_any_number_of_threads() -> None:
    rng = np.random.default_rng(5)
    y, moved = rng.normal(size=(1200, 600)), rng.normal(size=(300, 600)).astype(np.float32)
    solutions = []
    for n_threads in (1, 3):
        solutions.append(moved.copy())
        _core.solve_damped((y.T @ y).astype(np.float32), solutions[-1], 0.1, n_threads=n_threads)
    assert (solutions[0] == solutions[1]).all()


def test_equations_that_are_not_positive_definite_have_no_solution() -> None:
    moved = np.ones((2, 300), np.float32)
    _core.solve_damped(np.diag([1.0] * 299 + [-2]).astype(np.float32), moved, 0.1, n_threads=1)
    assert np.isnan(moved).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_equations_that_are_not_finite_have_no_solution(value: float) -> None:
    hessian, moved = np.eye(4, dtype=np.float32), np.ones((2, 4), np.float32)
    hessian[2, 2] = value
    _core.solve_damped(hessian, moved, 0.1, n_threads=2)
    assert np.isnan(moved).all()


def test_equations_of_other_shapes_are_refused() -> None:
    for hessian, moved in (((3, 4), (2, 3)), ((3, 3), (2, 4)), ((0, 0), (2, 0)), ((3, 3), (3,))):
        with pytest.raises(ValueError, match="expected shape"):
            _core.solve_damped(np.zeros(hessian, np.float32), np.zeros(moved, np.float32), 0.1, n_threads=1)


def test_many_directions_of_a_stream_are_measured_in_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of tokens are within 6 % then: what comes out is nearly as good as with all directions."""
    x, y = random_inputs()
    rng = np.random.default_rng(9)
    weights = rng.normal(size=(200, x.shape[1])).astype(np.float32)
    now = rng.normal(size=(len(x), 200)).astype(np.float32)
    stream = now + 0.1 * y @ rng.normal(size=(y.shape[1], 200)).astype(np.float32)
    size = np.linalg.norm(stream + x @ weights.T, axis=1, keepdims=True)
    wanted, inputs = (stream + x @ weights.T - now - y @ weights.T) / size, y / size
    losses = []
    for directions in (200, 128):
        monkeypatch.setattr("pyquant.rounding.corrected_target.DIRECTIONS", directions)
        sums = CorrectedTarget(weights)
        sums.add(x, y, stream, now)
        losses.append(np.square(inputs @ sums.result(DAMPENING).T - wanted).sum())
    assert losses[0] != losses[1] <= 1.002 * losses[0]


def test_sums_over_portions_are_over_all_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    original, changed = random_inputs()
    at_once = correction(original, changed, CORRECTION)
    monkeypatch.setattr("pyquant.calibration.products.PORTION", 7)
    np.testing.assert_allclose(correction(original, changed, CORRECTION), at_once, atol=1e-5)


def routed_inputs(n_used: int) -> tuple[np.ndarray, ...]:
    """Inputs of 400 tokens of either pass, and the two of three experts that they are sent to."""
    rng = np.random.default_rng(8)
    original = rng.normal(size=(400, n_used, 24)).astype(np.float32)
    changed = (original + 0.1 * original[..., ::-1]).astype(np.float32)
    experts = np.array([rng.permutation(3)[:2] for _ in range(400)], np.int32)
    moved = experts.copy()
    moved[::5] = [2, 0]  # some tokens go elsewhere in the copy
    return original, changed, experts, moved


def kept(inputs: np.ndarray, experts: np.ndarray, folder: Path, memory: int = 1 << 20) -> RoutedTokens:
    tokens = RoutedTokens(len(inputs), folder, memory)
    for part in (slice(0, 150), slice(150, len(inputs))):
        tokens.add(inputs[part], experts[part])
    return tokens


@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_each_expert_is_corrected_by_its_tokens(memory: int, tmp_path: Path) -> None:
    for n_used in (1, 2):
        original, changed, experts, moved = routed_inputs(n_used)
        sums = ExpertCorrections(
            kept(original, experts, tmp_path, memory), kept(changed, moved, tmp_path, memory)
        )
        assert not list(tmp_path.iterdir())  # the file has no name
        for expert in range(3):
            change = sums.result(expert, CORRECTION)
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


def test_experts_without_enough_tokens_are_left_alone(tmp_path: Path) -> None:
    original, changed, experts, _ = routed_inputs(1)
    moved = np.where(experts == 2, 3, experts)
    for n_tokens, left_alone in ((151, [True] * 4), (400, [False, False, True, False])):
        some = slice(0, n_tokens)
        sums = ExpertCorrections(
            kept(original[some], experts[some], tmp_path), kept(changed[some], moved[some], tmp_path)
        )
        assert [sums.result(expert, CORRECTION) is None for expert in range(4)] == left_alone
