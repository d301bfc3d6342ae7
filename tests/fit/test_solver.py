"""Types for a size: never above it, never worse than a stock mixture that fits, as far as is predicted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyquant.errors import ConfigError
from pyquant.fit.allocate import Allocation, Item, allocate
from pyquant.fit.mixtures import Files, candidates, recipe_of
from pyquant.fit.solver import Solver
from pyquant.models.model_file import ModelFile
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.models import EXPERTS, F32, ODD_ROWS


@pytest.fixture(scope="module", params=[F32, EXPERTS, ODD_ROWS])
def files(request, generated, stats_of, tmp_path_factory) -> Files:
    folder = tmp_path_factory.mktemp("sizes")
    return Files(ModelFile(generated(request.param)), stats_of(request.param), folder)


@pytest.fixture(scope="module")
def mixtures(files: Files):
    return files.stock()


def solver_of(files: Files, mixtures, wanted: int, seed: st.DataObject) -> Solver:
    stock = [mixture for mixture in mixtures if mixture.n_bytes <= wanted]
    options = candidates(files.tensors, None, stock)
    drawn = st.floats(1e-9, 1e9)
    errors = {
        tensor.name: {type_: seed.draw(drawn) for type_ in {*options[tensor.name], *_of(mixtures, tensor)}}
        for tensor in files.tensors
    }
    sensitivities = {name: seed.draw(drawn) for name in errors}
    return Solver(files, options, stock, "Q4_K_M", sensitivities.get, errors)


def _of(mixtures, tensor) -> set:
    return {mixture.types[tensor.name] for mixture in mixtures}


def test_kinds_without_a_correction_count_as_others_do(files, mixtures) -> None:
    """They would count a million times as much, where corrections turn predictions into nats."""
    errors = {tensor.name: {tensor.type: 1.0} for tensor in files.tensors}
    solver = Solver(files, {}, mixtures, "Q4_K_M", dict.fromkeys(errors, 3.0).get, errors)
    name, other = "blk.0.attn_q.weight", "token_embd.weight"
    type_ = files.tensors[0].type
    assert solver.cost(name, type_) == 3
    solver.factors = {"attn_q": 1e-6, "attn_k": 2e-6, "attn_v": 9e-6}
    assert solver.cost(name, type_) == pytest.approx(3e-6)
    assert solver.cost(other, type_) == pytest.approx(6e-6)


@pytest.mark.slow
@given(share=st.floats(0, 1), data=st.data())
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
def test_never_above_the_size_and_never_worse_than_stock(files, mixtures, tmp_path, share, data) -> None:
    least, most = mixtures[0].n_bytes, mixtures[-1].n_bytes
    wanted = round(least + share * (most - least))
    solver = solver_of(files, mixtures, wanted, data)
    found = solver.solve(wanted)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(recipe_of(found.types, solver.base).to_toml())
    for error_propagation in (None, 4):
        settings_ = {"recipe": recipe, "hessian": files.calibration, "error_propagation": error_propagation}
        planned = quantize_model(
            files.model, tmp_path / "out.gguf", make_mode({"mode": "recipe", **settings_}), dry_run=True
        )
        assert planned.output_bytes <= wanted
    assert solver.predicted(found.types) <= min(solver.predicted(mixture.types) for mixture in solver.stock)
    assert found.gap == 0  # exact


def test_the_gap_is_by_how_much_the_cost_is_above_the_bound(files, mixtures, monkeypatch) -> None:
    """What `allocate` finds is exact for models that tests can afford: it is told here not to be."""
    options = candidates(files.tensors, None, [])
    # Fewer bits have a larger error, so that some cost is left at every size.
    errors = {name: {type_: 1 / (1 + i) for i, type_ in enumerate(types)} for name, types in options.items()}
    solver = Solver(files, options, [], "Q2_K", lambda name: 1.0, errors)
    wanted = mixtures[0].n_bytes
    exact = solver.solve(wanted)
    assert exact.gap == 0

    def inexact(items: list[Item], budget: int) -> Allocation:
        found = allocate(items, budget)
        return replace(found, exact=False, bound=found.cost / 2)

    monkeypatch.setattr("pyquant.fit.solver.allocate", inexact)
    found = solver.solve(wanted)
    assert found.types == exact.types
    assert found.gap == pytest.approx(1, rel=1e-12)  # the cost is summed up in another order


def test_a_size_that_is_too_small_is_refused_with_what_bounds_it(files, mixtures) -> None:
    options = candidates(files.tensors, None, [])
    smallest = {name: types[0] for name, types in options.items()}
    least = files.n_bytes(smallest, "Q2_K")
    errors = {name: dict.fromkeys(types, 1.0) for name, types in options.items()}
    solver = Solver(files, options, [], "Q2_K", lambda name: 1.0, errors)
    solver.solve(least)
    says = rf"{least:,} bytes \(\S+ bits per weight\) are the least .* what bounds it: \w+ \w+ \(rows of"
    with pytest.raises(ConfigError, match=says):
        solver.solve(least - 1)


def test_the_size_is_that_of_the_file(files, mixtures, tmp_path) -> None:
    mixture = mixtures[len(mixtures) // 2]
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(recipe_of(mixture.types, mixture.name).to_toml())
    settings_ = {"mode": "recipe", "recipe": recipe, "hessian": files.calibration}
    quantize_model(files.model, tmp_path / "out.gguf", make_mode(settings_))
    assert 0 <= mixture.n_bytes - (tmp_path / "out.gguf").stat().st_size <= 64  # in order it says so
