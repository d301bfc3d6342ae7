"""Run policies beside each other and beside no draft, in turns, and compare their times."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from pyquant import limits
from pyquant.errors import ConfigError
from pyquant.generation.sampling.generate import make_plan
from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.result import END
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.decoding.flips import Flip, find_flips
from pyquant.generation.speculative.decoding.pair import check_both, open_draft
from pyquant.generation.speculative.decoding.result import DraftedCompletion
from pyquant.generation.speculative.decoding.speculate import Speculation
from pyquant.generation.speculative.policies import make_policy
from pyquant.generation.speculative.policies.costs import Costs
from pyquant.llama.model import Model
from pyquant.models.model_file import AnyModel

ALONE = "no draft"
RESAMPLED = 2000  # times that prompts are drawn again, for an interval
FEWEST = 4  # prompts that tell chance from what is not

# (completions done, all completions)
Progress = Callable[[int, int], None]


@dataclass
class PolicyRun:
    """What was generated with a policy.

    Attributes
    ----------
    turns : list of list of DraftedCompletion
        Of each turn, a completion for each prompt.
    flips : list of list of Flip
        If asked for: of each completion of the first turn, where the target alone would go on otherwise.
    """

    policy: str
    turns: list[list[DraftedCompletion]]
    flips: list[list[Flip]] = field(default_factory=list)

    def seconds_per_token(self) -> list[float]:
        """Return the seconds per token of every prompt's completions, the mean over turns."""
        of_prompts = zip(*self.turns)
        return [statistics.fmean(each.seconds / each.n_tokens for each in its) for its in of_prompts]

    def to_json(self, alone: PolicyRun) -> dict[str, Any]:
        """Return it as `pyquant draft run --json` prints each of its `policies`; ratios are to `alone`."""
        low, ratio, high = _ratio(alone.seconds_per_token(), self.seconds_per_token())
        rates = [sum(t.n_tokens for t in turn) / sum(t.seconds for t in turn) for turn in self.turns]
        completions = [completion for turn in self.turns for completion in turn]
        names = ("n_tokens", "n_drafted", "n_accepted", "draft_seconds", "policy_seconds")
        tokens, drafted, accepted, draft_seconds, policy_seconds = (
            sum(getattr(completion, name) for completion in completions) for name in names
        )
        n_rounds = sum(len(completion.rounds) for completion in completions)
        checked = {"flips": [[flip._asdict() for flip in flips] for flips in self.flips]}
        return {
            "policy": self.policy,
            "tokens_per_second": statistics.median(rates),
            "low": min(rates),
            "high": max(rates),
            "ratio": ratio,
            "ratio_low": low,
            "ratio_high": high,
            "tokens": tokens,
            "rounds": n_rounds,
            "tokens_per_round": (tokens - len(completions)) / n_rounds if n_rounds else None,
            "drafted": drafted,
            "accepted": accepted,
            "acceptance": accepted / drafted if drafted else None,
            "draft_seconds": draft_seconds,
            "verify_seconds": sum(completion.verify_seconds for completion in completions),
            "policy_share": policy_seconds / draft_seconds if draft_seconds else None,
            **(checked if self.flips else {}),
        }


def check_run(turns: int, sampling: Sampling, *, check: bool) -> None:
    """Refuse what cannot be timed. Raises ConfigError."""
    limits.ROUNDS.check("turns", turns)
    if check and sampling.temperature > 0:
        raise ConfigError("check: completions that are drawn differ by chance; it needs temperature 0")


def run_policies(
    target: AnyModel,
    draft: AnyModel,
    policies: Sequence[str],
    prompts: Sequence[Prompt],
    *,
    sampling: Sampling,
    max_tokens: int = 128,
    turns: int = 3,
    costs: Costs | None = None,
    check: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[PolicyRun]:
    """Generate a completion of each prompt with no draft, which comes first, and with each policy, in turns.

    A first completion with each is not counted. The order changes from prompt to prompt.

    Parameters
    ----------
    target, draft
        Models with one vocabulary; the draft may be "ngram".
    policies
        As `make_policy` takes them.
    prompts
    sampling, max_tokens
        How the target draws, and tokens of a completion.
    turns, costs
        How often all of it is done; for policies that decide by times.
    check
        Find flips; completions have to be greedy.
    threads
        None: all cores.
    progress

    Raises
    ------
    ConfigError, ModelFileError, TextError, NotEnoughMemory
    """
    check_run(turns, sampling, check=check)
    made = [None, *(make_policy(policy, costs) for policy in policies)]
    runs = [PolicyRun(name, [[] for _ in range(turns)]) for name in (ALONE, *policies)]
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
            for writer in writers:
                writer.complete(plan, 0)  # not counted
                writer.forget()
            every = list(product(range(turns), range(len(prompts)), range(len(runs))))
            for n, (turn, prompt, i) in enumerate(every, start=1):
                at = (i + prompt + turn) % len(runs)
                runs[at].turns[turn].append(writers[at].complete(plan, prompt))
                if progress:
                    progress(n, len(every))
            for run in runs[1:] if check else []:
                for tokens, its in zip(plan.prompts, (completion.sample for completion in run.turns[0])):
                    run.flips.append(find_flips(session, tokens, its.tokens, ended=its.finish == END))
    return runs


def are_apart(runs: Sequence[PolicyRun]) -> bool:
    """Say whether the fastest of runs is faster in 95 % of resamples of prompts; few prompts say nothing."""
    first, second = sorted(runs, key=lambda run: sum(run.seconds_per_token()))[:2]
    low, _, _ = _ratio(second.seconds_per_token(), first.seconds_per_token())
    return low is not None and low > 1


def _ratio(alone: list[float], drafted: list[float]) -> tuple[float | None, float, float | None]:
    """Return how many times as fast it was: what 95 % of resamples are above, all, and below.

    alone, drafted: seconds per token, by prompt. Of fewer than FEWEST the bounds are None.
    """
    if len(alone) < FEWEST:
        return None, sum(alone) / sum(drafted), None
    pairs = np.array([alone, drafted])
    chosen = np.random.default_rng(0).integers(0, pairs.shape[1], (RESAMPLED, pairs.shape[1]))
    sums = pairs[:, chosen].sum(axis=2)
    low, high = np.percentile(sums[0] / sums[1], [2.5, 97.5])
    total = pairs.sum(axis=1)
    return float(low), float(total[0] / total[1]), float(high)
