"""Run policies beside each other and beside no draft, in turns, and compare their times."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pyquant import limits
from pyquant.errors import ConfigError
from pyquant.generation.sampling.generate import Plan, make_plan
from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.result import END
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.measure.cost_meter import FEWEST, LARGEST, SHALLOWEST, CostMeter
from pyquant.generation.speculative.measure.cost_report import Timed
from pyquant.generation.speculative.measure.foretell import Foretold, foretell
from pyquant.generation.speculative.policies import make_policy
from pyquant.generation.speculative.policies.costs import Costs
from pyquant.generation.speculative.record.record import Record
from pyquant.generation.speculative.replay.simulate import Simulation
from pyquant.generation.speculative.write.draft import Draft
from pyquant.generation.speculative.write.flips import Flip, find_flips
from pyquant.generation.speculative.write.pair import check_both, open_draft
from pyquant.generation.speculative.write.result import DraftedText
from pyquant.generation.speculative.write.speculate import Speculation
from pyquant.llama.model import Model
from pyquant.machine.processor import n_threads

SCHEMA = "pyquant.draft.run/1"
ALONE = "no draft"
TIMES = 2  # that costs are measured behind each prompt's texts
RESAMPLED = 2000  # times that pairs are drawn again, for an interval

Progress = Callable[[int, int], None]


@dataclass
class PolicyRun:
    """What a policy wrote.

    Attributes
    ----------
    policy : str
        "no draft" for the target alone.
    texts : list of list of DraftedText
        Of each turn, a text for each prompt.
    flips : list of list of Flip
        If asked for: of each text of the first turn, where the target alone would go on otherwise.
    """

    policy: str
    texts: list[list[DraftedText]] = field(default_factory=list)
    flips: list[list[Flip]] = field(default_factory=list)

    @property
    def rates(self) -> list[float]:
        """Tokens per second of each turn."""
        return [sum(t.n_tokens for t in turn) / sum(t.seconds for t in turn) for turn in self.texts]

    def seconds_per_token(self) -> list[float]:
        """Return the seconds per token of every text."""
        return [text.seconds / text.n_tokens for turn in self.texts for text in turn]

    def total(self, name: str) -> float:
        """Return the sum of an attribute over all texts."""
        return sum(getattr(text, name) for turn in self.texts for text in turn)

    def to_json(self, alone: PolicyRun) -> dict[str, Any]:
        """Return it as `pyquant draft run --json` prints each of its `policies`; ratios are to `alone`."""
        low, ratio, high = _ratio(alone.seconds_per_token(), self.seconds_per_token())
        drafted, draft_seconds = self.total("n_drafted"), self.total("draft_seconds")
        texts = [text for turn in self.texts for text in turn]
        n_rounds = sum(len(text.rounds) for text in texts)
        checked = {"flips": [[flip.to_json() for flip in flips] for flips in self.flips]}
        return {
            "policy": self.policy,
            "tokens_per_second": statistics.median(self.rates),
            "low": min(self.rates),
            "high": max(self.rates),
            "ratio": ratio,
            "ratio_low": low,
            "ratio_high": high,
            "tokens": int(self.total("n_tokens")),
            "rounds": n_rounds,
            "tokens_per_round": (self.total("n_tokens") - len(texts)) / n_rounds if n_rounds else None,
            "drafted": int(drafted),
            "accepted": int(self.total("n_accepted")),
            "acceptance": self.total("n_accepted") / drafted if drafted else None,
            "draft_seconds": draft_seconds,
            "verify_seconds": self.total("verify_seconds"),
            "policy_share": self.total("policy_seconds") / draft_seconds if draft_seconds else None,
            **(checked if self.flips else {}),
        }


@dataclass(frozen=True)
class RunReport:
    """Policies beside no draft, which is the first of `runs`.

    Attributes
    ----------
    costs : Costs or None
        What policies decided by.
    timed : Timed or None
        The same, measured in turns with the texts: behind each prompt's.
    """

    target: Path
    draft: Path | str
    sampling: Sampling
    max_tokens: int
    n_prompts: int
    n_threads: int
    runs: list[PolicyRun]
    costs: Costs | None = None
    timed: Timed | None = None

    @property
    def apart(self) -> bool:
        """Say whether the fastest is faster than the next one beyond chance."""
        return are_apart(self.runs)

    def foretold(self, record: Record | None = None) -> list[Foretold]:
        """Put milliseconds per token beside what costs and a record of the same texts say; see `foretell`.

        Costs are the means of those measured in turns with the texts: whatever slowed the machine meanwhile
        slowed both. Empty where there are none.
        """
        if self.timed is None:
            return []
        costs = self.timed.costs(of_turns=statistics.fmean)
        replay = None
        if record is not None:
            seed = self.sampling.seed
            replay = Simulation(record, costs, decides=self.costs, seed=seed, other_models=True)
        every = (
            foretell(
                None if run.policy == ALONE else run.policy,
                [text for turn in run.texts for text in turn],
                costs,
                replay,
            )
            for run in self.runs
        )
        return [foretold for foretold in every if foretold is not None]

    def to_json(self) -> dict[str, Any]:
        """Return the report as `pyquant draft run --json` prints it."""
        return {
            "schema": SCHEMA,
            "target": str(self.target),
            "draft": str(self.draft),
            "sampling": self.sampling.to_json(),
            "max_tokens": self.max_tokens,
            "prompts": self.n_prompts,
            "turns": len(self.runs[0].texts),
            "n_threads": self.n_threads,
            "apart": self.apart,
            "policies": [run.to_json(self.runs[0]) for run in self.runs],
            **({"timed": self.timed.to_json()} if self.timed else {}),
        }


def run_policies(
    target: Path,
    draft: Path | str,
    policies: Sequence[str],
    prompts: Sequence[Prompt],
    *,
    sampling: Sampling,
    max_tokens: int = 128,
    turns: int = 3,
    until_apart: bool = False,
    costs: Costs | None = None,
    check: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> RunReport:
    """Write a text for each prompt with no draft and with each policy, in turns.

    A first text with each is not counted. The order changes from prompt to prompt.

    Parameters
    ----------
    target
    draft
        A model with the target's vocabulary, or "ngram".
    policies
        As `make_policy` takes them.
    prompts
    sampling
        How the target draws.
    max_tokens
        Tokens of a text.
    turns
        How often all of it is done.
    until_apart
        Stop after a turn, the second or a later one, if the fastest is faster than the next beyond chance.
    costs
        For policies that decide by times. Where they are given, they are measured again behind each prompt's
        texts (`RunReport.timed`).
    check
        Find flips; texts have to be greedy.
    threads
        None: all processors.
    progress
        Called with texts done and all of them.

    Raises
    ------
    ConfigError, ModelFileError, TextError, NotEnoughMemory
    """
    limits.ROUNDS.check("turns", turns)
    if check and sampling.temperature > 0:
        raise ConfigError("check: texts that are drawn differ by chance; it needs temperature 0")
    made = [None, *(make_policy(policy, costs) for policy in policies)]
    runs = [PolicyRun(name) for name in (ALONE, *policies)]
    check_both(target, draft, max_tokens, costs)
    with Model(target) as model:
        plan = make_plan(model, prompts, max_tokens=max_tokens, n_parallel=1)
        with (
            Session(model, 1, plan.n_ctx, n_views=1, threads=threads) as session,
            open_draft(draft, session, sampling, threads=threads) as its_draft,
        ):
            writers = [
                Speculation(session, its_draft if policy else None, sampling, policy or make_policy("fixed"))
                for policy in made
            ]
            first = [writer.write(plan, 0) for writer in writers]  # not counted
            for writer in writers:
                writer.forget()
            meter = None
            if costs is not None:
                meter = _meter(model, session, its_draft, sampling, plan, _largest_pass(first))
            _take_turns(runs, writers, plan, turns, until_apart, meter, progress)
            if check:
                for run in runs[1:]:
                    run.flips = [_flips(session, plan, text) for text in run.texts[0]]
    n = n_threads(threads)
    timed = meter.timed() if meter else None
    return RunReport(target, draft, sampling, max_tokens, len(plan.prompts), n, runs, costs, timed)


def _meter(
    model: Model, session: Session, draft: Draft, sampling: Sampling, plan: Plan, largest: int
) -> CostMeter | None:
    """Make a meter behind as many tokens as texts have in the middle; None where there is no room for it."""
    wanted = statistics.fmean(len(tokens) for tokens in plan.prompts) + plan.max_tokens / 2
    depth = min(max(round(wanted), SHALLOWEST), plan.n_ctx - FEWEST)
    if depth < SHALLOWEST:
        return None
    largest = min(largest, plan.n_ctx - depth)
    return CostMeter(model, session, draft, sampling, depth=depth, largest=largest)


def _largest_pass(texts: list[DraftedText]) -> int:
    """Return how many tokens the largest pass of some texts had, within what meters measure."""
    most = max((drafted + 1 for text in texts for drafted, _ in text.rounds), default=FEWEST)
    return min(max(most, FEWEST), LARGEST)


def _take_turns(
    runs: list[PolicyRun],
    writers: list[Speculation],
    plan: Plan,
    turns: int,
    until_apart: bool,
    meter: CostMeter | None,
    progress: Progress | None,
) -> None:
    n_done = 0
    for turn in range(turns):
        for run in runs:
            run.texts.append([])
        for prompt in range(len(plan.prompts)):
            for i in range(len(runs)):
                at = (i + prompt + turn) % len(runs)
                runs[at].texts[-1].append(writers[at].write(plan, prompt))
                n_done += 1
                if progress:
                    progress(n_done, turns * len(plan.prompts) * len(runs))
            if meter:
                meter.begin()
                for _ in range(TIMES):
                    meter.turn()
        if until_apart and turn > 0 and are_apart(runs):
            return


def are_apart(runs: Sequence[PolicyRun]) -> bool:
    """Say whether the fastest of runs of the same texts is faster than the next in 95 % of resamples."""
    first, second = sorted(runs, key=lambda run: sum(run.seconds_per_token()))[:2]
    return _ratio(second.seconds_per_token(), first.seconds_per_token())[0] > 1


def _flips(session: Session, plan: Plan, text: DraftedText) -> list[Flip]:
    sample = text.sample
    return find_flips(session, plan.prompts[sample.prompt], sample.tokens, ended=sample.finish == END)


def _ratio(alone: list[float], drafted: list[float]) -> tuple[float, float, float]:
    """Return how many times as fast texts were written: what 95 % of resamples are above, all, and below."""
    pairs = np.array([alone, drafted])
    chosen = np.random.default_rng(0).integers(0, pairs.shape[1], (RESAMPLED, pairs.shape[1]))
    sums = pairs[:, chosen].sum(axis=2)
    low, high = np.percentile(sums[0] / sums[1], [2.5, 97.5])
    total = pairs.sum(axis=1)
    return float(low), float(total[0] / total[1]), float(high)
