"""Measure a pair for a study: its costs, and by sorts of prompts a record, the best policies, and runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.speculative.measure.measure_costs import measure_costs
from pyquant.generation.speculative.measure.run import run_policies
from pyquant.generation.speculative.policies import FAMILIES
from pyquant.generation.speculative.policies.costs import costs_from
from pyquant.generation.speculative.replay.record import make_record
from pyquant.generation.speculative.replay.replay import NONE, ORACLE, Replay
from pyquant.generation.speculative.replay.search import search

STRATEGIES = ("static", "moving_average", "cumulative")  # strategies of entropy drafting
HEURISTIC, EXPECTED = "plus_minus", "expected_value"
GREEDY = Sampling(temperature=0)

# (share done, what is at work)
Progress = Callable[[float, str], None]


def measure_pair(
    target: Path,
    draft: Path | str,
    sorts: Mapping[str, Sequence[Prompt]],
    *,
    max_tokens: int,
    rounds: int,
    confirm: int,
    turns: int,
    threads: int | None = None,
    progress: Progress = lambda share, what: None,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Measure a pair.

    Parameters
    ----------
    target
    draft
        A model with the target's vocabulary, or "ngram".
    sorts
        Prompts by their sort.
    max_tokens
        Tokens of a text.
    rounds
        Measurements of each cost.
    confirm, turns
        Prompts of each sort that texts are drafted for in earnest, and how often with each policy.
    threads
        None: all processors.
    progress

    Returns
    -------
    cells : list of dict
        Of each sort `texts`, `tokens`, `drafted` and `acceptance`: the same on every machine.
    took : dict
        `costs`, and by sort `replays` of no draft, of each policy with its best parameters, and of the
        oracle, and `runs` in earnest: of no draft, Transformers' heuristic, the best strategy of entropy
        drafting, and the expected value.

    Raises
    ------
    ConfigError, ModelFileError, TextError, NotEnoughMemory
    """
    progress(0, "costs")
    measured = measure_costs(target, draft, rounds=rounds, threads=threads)
    costs, cells, took = costs_from(measured), [], {}
    given: dict[str, Any] = {"sampling": GREEDY, "max_tokens": max_tokens, "threads": threads}
    for n, (sort, prompts) in enumerate(sorts.items()):
        progress((n + 0.2) / len(sorts), f"record of {sort}")
        record = make_record(target, draft, prompts, **given)
        progress((n + 0.6) / len(sorts), f"policies for {sort}")
        replay = Replay(record, costs)
        best = {name: search(replay, name).best for name in FAMILIES}
        strategy = min((best[name] for name in STRATEGIES), key=lambda its: its.ms_per_token)
        chosen = [its.policy for its in (best[HEURISTIC], strategy, best[EXPECTED])]
        runs = run_policies(target, draft, chosen, prompts[:confirm], turns=turns, costs=costs, **given)
        replays = [replay.run(NONE), *best.values(), replay.run(ORACLE)]
        took[sort] = {
            "replays": [asdict(its) for its in replays],
            "runs": [run.to_json(runs[0]) for run in runs],
        }
        of_record = {"texts": len(record.texts), "tokens": record.n_tokens, "drafted": len(record.drafted)}
        cells.append({"sort": sort, **of_record, "acceptance": record.acceptance})
    kept = {name: measured[name] for name in ("n_threads", "depth", "draft", "alone", "verify")}
    kept["draft"] = {key: value for key, value in measured["draft"].items() if key != "model"}
    return cells, {"costs": kept, "sorts": took}
