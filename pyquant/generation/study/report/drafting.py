"""Drafting in reports: acceptance, gains of policies, times of passes, and runs beside what was foretold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from pyquant.generation.speculative.measure.measure_pair import STRATEGIES
from pyquant.generation.speculative.policies import FAMILIES
from pyquant.generation.speculative.policies.costs import Costs, costs_from
from pyquant.generation.speculative.record.record import ARRAYS, Along, Record, Source
from pyquant.generation.speculative.replay.simulate import ORACLE, Simulation
from pyquant.study.results.columns import Column, Flat, get
from pyquant.study.results.read import ModelResults, RowResults

METRIC = "drafting"
HEURISTIC, EXPECTED = "plus_minus", "expected_value"
COLUMNS = (
    Column("drafting_c", "draft token / pass", "seconds of a draft token over those of a pass of one"),
    Column("drafting_acceptance", "accepted (%)",
           "share of the draft's most likely tokens that are the target's, up to texts' first repetitions",
           "percent"),
    Column("drafting_heuristic", "gain: heuristic", "times as fast as alone with policy plus_minus"),
    Column("drafting_best", "gain: best policy", "times as fast as the target alone with the best policy"),
    Column("drafting_expected", "gain: expected value",
           "times as fast as the target alone with policy expected_value"),
    Column("drafting_oracle", "gain: oracle", "times as fast as alone, all acceptances being known"),
)  # fmt: skip
Took = dict[str, Any]


def took(row: RowResults, target: str | None = None) -> Took | None:
    """Return what drafting took in a row: costs, policies with their best parameters, and runs.

    target: name of the target; None for the first.
    """
    measured = row.measurement(METRIC)
    every: list[Took] = measured.provenance.get(METRIC, []) if measured else []
    return next((part for part in every if target in (None, part["target"])), None)


def targets(model: ModelResults) -> list[str]:
    """Return names of the targets, in the study's order."""
    every = [
        part["target"]
        for row in model.rows
        if (measured := row.measurement(METRIC))
        for part in measured.provenance.get(METRIC, [])
    ]
    return list(dict.fromkeys(every))


def parts_of(model: ModelResults, target: str) -> list[tuple[RowResults, Took]]:
    """Return what drafting for a target took, of each row that was measured."""
    return [(row, part) for row in model.rows if (part := took(row, target))]


def sorts_of(model: ModelResults, target: str) -> list[str]:
    """Return the sorts of prompts of which there are records, in the study's order."""
    return list(dict.fromkeys(sort for _, part in parts_of(model, target) for sort in part["best"]))


def runs_in(part: Took) -> Iterator[tuple[str, Took, Took]]:
    """Yield what each policy wrote in earnest: its prompts' sort, the run, and what was foretold."""
    for run in part["runs"]:
        foretold = {its["policy"]: its for its in run["foretold"]}
        for ran in run["policies"][1:]:  # the first is the target alone
            yield run["sort"], ran, foretold.get(ran["policy"], {})


def costs_of(part: Took) -> Costs:
    """Return the costs that were measured."""
    return costs_from(part["costs"])


def gain(part: Took, policy: str, sort: str | None = None) -> float | None:
    """Return the gain of a policy with its best parameters; in the harmonic mean of all sorts of prompts."""
    found = [
        its["gain"]
        for name, best in part["best"].items()
        if sort in (None, name)
        for its in best
        if its["policy"].partition(":")[0] == policy
    ]
    return len(found) / sum(1 / each for each in found) if found else None


def best_gain(part: Took, sort: str | None = None, of: Iterable[str] = FAMILIES) -> float | None:
    """Return the gain of the policy that gains most, of some."""
    known = [its for name in of if (its := gain(part, name, sort)) is not None]
    return max(known, default=None)


def share(row: RowResults, name: str, target: str | None = None, sort: str | None = None) -> float | None:
    """Return the mean of `acceptance` or `entropy` up to first repetitions, over tokens."""
    every: list[dict[str, Any]] = get(row.result(METRIC), "cells") or []
    cells = [
        cell
        for cell in every
        if cell["target"] == (target or every[0]["target"]) and sort in (None, cell["sort"])
    ]
    return mean_of(cells, "fresh", name)


def mean_of(cells: list[dict[str, Any]], which: str, name: str) -> float | None:
    """Return the mean over drafted tokens: `all`, or those up to first repetitions, `fresh`; or None."""
    known = [(n, cell[f"{which}_{name}"]) for cell in cells if (n := cell[f"{which}_drafted"])]
    n_drafted = sum(n for n, _ in known)
    return sum(n * mean for n, mean in known) / n_drafted if n_drafted else None


def flat(row: RowResults) -> Flat:
    """Return the columns of a row, with the study's first target."""
    part = took(row)
    known: Flat = {column.key: None for column in COLUMNS}
    if part is None:
        return known
    costs = costs_of(part)
    return {
        "drafting_c": costs.draft_next / costs.alone,
        "drafting_acceptance": share(row, "acceptance"),
        "drafting_heuristic": gain(part, HEURISTIC),
        "drafting_best": best_gain(part),
        "drafting_expected": gain(part, EXPECTED),
        "drafting_oracle": gain(part, ORACLE),
    }


def best_row(model: ModelResults, target: str) -> RowResults | None:
    """Return the quantizer whose drafts gain most for a target; n-grams are none."""
    known = [
        (its, row)
        for row, part in parts_of(model, target)
        if row.mode is not None and (its := best_gain(part)) is not None
    ]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def simulation_of(model: ModelResults, row: RowResults, target: str) -> Simulation | None:
    """Build a simulation of all texts up to their first repetitions, from a row's results per item."""
    part, measured = took(row, target), row.measurement(METRIC)
    if part is None or measured is None or measured.items_file is None:
        return None
    record = _record(measured.items_file, model.name, row.label, target)
    return Simulation(record, costs_of(part), other_models=True) if record.n_tokens else None


@lru_cache(maxsize=4)
def _record(items_file: Any, model: str, label: str, target: str) -> Record:
    from pyquant.study.items import read_items

    items = read_items(items_file)
    chosen = items["target"] == target
    columns = {name: items[name][chosen] for name in items}
    n = int(chosen.sum())
    changes = np.zeros(n, bool)
    for name in ("sort", "prompt", "new", "text"):
        changes[1:] |= columns[name][1:] != columns[name][:-1]
    texts = []
    for number, part in enumerate(np.split(np.arange(n), np.flatnonzero(changes))):
        arrays = {name: columns[name][part].astype(np.float64) for name in ARRAYS}
        first = {name: columns[name][part[0]].item() for name in ("ended", "new")}
        fresh = int(columns["fresh"][part].sum())
        texts.append(Along(number, 0, first["ended"], first["new"], **arrays, fresh=fresh))
    name = model if target == "unquantized" else f"{model} in {target}"
    source = Source(
        version="", target=name, draft=label, target_sha256="", draft_sha256="", prompts_sha256="",
        chat=False, n_samples=1, max_tokens=0, temperature=0.0, seed=0,
    )  # fmt: skip
    return Record(source, texts).before_repetitions()


def findings(model: ModelResults) -> list[str]:
    """Say which quantizer drafts best for each target, and how near policies come to the oracle."""
    said = []
    for target in targets(model):
        row = best_row(model, target)
        part = took(row, target) if row else None
        if row is None or part is None:
            continue
        most, oracle, expected = best_gain(part), gain(part, ORACLE), gain(part, EXPECTED)
        strategy = best_gain(part, of=STRATEGIES)
        passes = costs_of(part)
        said.append(
            f"Target {target}: {row.label} drafts best, {most:.2f} times as fast as the target alone with "
            f"the best policy, {strategy:.2f} with the best strategy of entropy drafting, {expected:.2f} "
            f"with expected_value, of {oracle:.2f} at most. A pass over 4 tokens takes "
            f"{passes.of_pass(4) / passes.of_pass(1):.2f} times as long as one over 1."
        )
    return said
