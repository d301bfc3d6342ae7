"""Panels: no numbers that collide, no formulas in names, families by what they are."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pyquant.errors import StudyError
from pyquant.study.results.comparison import gptq_rows
from pyquant.study.results.figures import CAP, MOST_TICKS, Points, figure
from pyquant.study.results.read import Measurement, ModelResults, RowResults
from pyquant.study.results.tradeoff import FAMILIES, labelled, points, tradeoff


def drawn(values: list[float], reference: float | None = None, name: str = "a row") -> Figure:
    return figure(Points([name] * len(values), values, [0.1] * len(values), reference, "axis", "title"))


def numbers(drawing: Figure) -> list[tuple[float, float]]:
    """Ends of the numbers on the horizontal axis, in pixels."""
    FigureCanvasAgg(drawing).draw()
    (axes,) = drawing.axes
    low, high = axes.get_xlim()
    inside = [tick for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    boxes = [tick.label1.get_window_extent() for tick in inside if tick.label1.get_text()]
    return sorted((box.x0, box.x1) for box in boxes)


@pytest.mark.parametrize(
    ("values", "reference"),
    [
        ([9.0, 9.4, 10.8, 152.0, 6503.0, 1.5e19], 9.0),
        ([9.0, 9.4], 9.0),
        ([1e-7, 1e-3, 42.0], None),
        ([1e-12, 1e19], None),
        ([1.0, 2e-15, 0.02], 1.0),
        ([0.0005, 0.05, 0.049], None),
        ([0.0, 0.0], None),
    ],
)
@pytest.mark.parametrize("name", ["q4_0", "ecsq hessian=imatrix:in_domain sensitivity=measured 4 bits"])
def test_numbers_do_not_collide(values: list[float], reference: float | None, name: str) -> None:
    found = numbers(drawn(values, reference, name=name))
    assert 2 <= len(found) <= MOST_TICKS + 2
    for (_, end), (begin, _) in itertools.pairwise(found):
        assert end + 2 < begin


def test_what_is_far_away_stands_at_the_edge() -> None:
    drawing = drawn([9.0, 9.0 * CAP + 1, 1.5e19, 1.8e-15], 9.0)
    (axes,) = drawing.axes
    assert 9.0 / CAP < axes.get_xlim()[0] < axes.get_xlim()[1] < 9.0 * CAP
    assert [text.get_text() for text in axes.texts] == ["900", "1.5e19", "1.8e-15"]
    assert [text.xy[0] for text in axes.texts] == [1, 1, 0]


def test_a_name_is_no_formula() -> None:
    drawing = drawn([1.0], name=r"$\frac$ & $x$")
    buffer = io.StringIO()
    drawing.savefig(buffer, format="svg")
    assert "$" in drawing.axes[0].get_yticklabels()[0].get_text()
    assert r"\frac" in drawing.axes[0].get_yticklabels()[0].get_text()


def model_of(*rows: tuple[str, str | None], klds: Sequence[float] = ()) -> ModelResults:
    """Quantizers by mode and how they know inputs, as (mode, how), each of another size."""
    klds = klds or [0.1 / (i + 1) for i in range(len(rows))]

    def row(i: int, mode: str, how: str | None) -> RowResults:
        kld = {"mean": klds[i], "error": 0.001}
        results = {"size": {"code_bits": 3.0 + i / 4, "bits": 4.0 + i / 4}, "quality": {"kld": kld}}
        knows = {"name": "in_domain", "how": how} if how else None
        measured = {name: [Measurement("key", result, {}, None)] for name, result in results.items()}
        return RowResults(f"{mode} {i}", f"{mode} {i}", mode, knows, {}, measured)

    return ModelResults("model", "", ["text"], [row(i, *settings) for i, settings in enumerate(rows)])


def test_ecsq_points_are_named_by_the_axis_alone() -> None:
    hows = ("diagonal", "error_propagation", "gptq")
    model = model_of(*(("ecsq", how) for how in hows), ("q4_0_multizero", None), ("ggml:Q4_K", "imatrix"))
    every = points(model, 0)
    assert [point.family.name for point in every] == [
        "ecsq", "ecsq, error propagation", "ecsq, GPTQ", "multi-zero", "stock types with imatrix",
    ]  # fmt: skip
    assert [point.family.name for point in labelled(every)] == ["multi-zero", "stock types with imatrix"]
    assert {family.name for family in FAMILIES if not family.labelled} == {
        family.name for family in FAMILIES if family.name.startswith(("ecsq", "mixtures found"))
    }
    (axes,) = figure(tradeoff(model, 0)).axes
    assert sorted(text.get_text() for text in axes.texts) == ["3", "4"]


def test_a_study_without_kld_has_no_figure_of_it() -> None:
    with pytest.raises(StudyError, match="no quantizer of model has both size and KLD"):
        tradeoff(model_of(("ggml:Q4_0", "gptq"), klds=[0.0]), 0)


def test_settings_of_gptq_tell_rows_apart() -> None:
    settings = [("ggml:Q4_0", f"hessian={name} dampening={x}", name) for name in "ab" for x in (0.1, 0.5)]
    settings.append(("q8_0", "hessian=a", "a"))
    rows = [
        replace(row, alike=mode, label=f"{mode} {more}", knows={"name": name, "how": "gptq"})
        for row, (mode, more, name) in zip(model_of(*[("", "gptq")] * 5).rows, settings)
    ]
    found = gptq_rows(ModelResults("model", "", ["text"], rows), 0)
    assert [(row["quantizer"], row["calibration"]) for row in found] == [
        *((f"ggml:Q4_0 dampening={x}", name) for name in "ab" for x in (0.1, 0.5)), ("q8_0", "a"),
    ]  # fmt: skip


@pytest.mark.parametrize("klds", [[0.0, 0.1], [0.1, 0.0]], ids=str)
def test_a_kld_of_0_has_no_point_and_no_ratio(klds: list[float]) -> None:
    model = model_of(("ggml:Q4_0", "gptq"), ("ggml:Q4_0", "imatrix"), klds=klds)
    assert [point.kld for point in points(model, 0)] == [0.1]
    (row,) = gptq_rows(model, 0)
    assert (row["kld"], row["best_kld"], row["ratio_to_best"]) == (*klds, None)
