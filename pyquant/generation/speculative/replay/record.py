"""Record what a draft would say along completions of its target, from which any policy can be replayed.

The target generates, and at each token the draft is asked for one, which is verified. As long as drafted
tokens are accepted, a draft has read the target's completion, so it is as sure as recorded. At a refused
token the round ends, and the draft goes on from the target's completion. What was drafted behind a refused
token is all that a record does not know. It is never part of the completion, and what stands in for it,
certainties along the target's completion, decides only how many more tokens are drafted in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from pyquant.errors import ModelFileError
from pyquant.generation.sampling.generate import Plan, make_plan
from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.decoding.draft import Draft
from pyquant.generation.speculative.decoding.pair import check_both, open_draft
from pyquant.generation.speculative.decoding.shared_cache import SPAN
from pyquant.generation.speculative.decoding.verify import DRAFT, Numbers, verify
from pyquant.generation.speculative.policies.certainty import Certainty
from pyquant.llama.model import Model
from pyquant.models.model_file import AnyModel

# (completions done, all completions)
Progress = Callable[[int, int], None]


class Said(NamedTuple):
    """How sure a draft was at a token (None: it said nothing), and whether it was accepted."""

    sure: Certainty | None
    accepted: bool


@dataclass(frozen=True)
class Along:
    """A completion, token by token, and whether its last one is one that ends a completion."""

    said: list[Said]
    ended: bool


@dataclass(frozen=True)
class Record:
    """A target's completions, tokens that each was allowed to have, and whether the target drew them."""

    completions: list[Along]
    max_tokens: int
    drawn: bool

    @property
    def n_tokens(self) -> int:
        """Tokens of all completions."""
        return sum(len(completion.said) for completion in self.completions)

    @property
    def drafted(self) -> list[tuple[Certainty, bool]]:
        """Certainty and acceptance, wherever something is drafted."""
        return [
            (said.sure, said.accepted)
            for completion in self.completions
            for said in completion.said
            if said.sure
        ]

    @property
    def acceptance(self) -> float | None:
        """Share of drafted tokens that is accepted; None where nothing is drafted."""
        drafted = self.drafted
        return sum(accepted for _, accepted in drafted) / len(drafted) if drafted else None


def make_record(
    target: AnyModel,
    draft: AnyModel,
    prompts: Sequence[Prompt],
    *,
    sampling: Sampling,
    n_samples: int = 1,
    max_tokens: int = 128,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Record:
    """Record what a draft would say along completions of its target.

    Parameters
    ----------
    target, draft
        Models with one vocabulary; the draft may be "ngram".
    prompts
    sampling, n_samples, max_tokens
        How both draw; completions for each prompt, and tokens of a completion at most.
    threads
        None: all cores.
    progress

    Raises
    ------
    ConfigError, ModelFileError, TextError, NotEnoughMemory
    """
    check_both(target, draft, max_tokens)
    completions = []
    with Model(target) as model:
        plan = make_plan(model, prompts, n_samples=n_samples, max_tokens=max_tokens, n_parallel=1)
        with (
            Session(model, 1, plan.n_ctx, n_views=1, threads=threads) as session,
            open_draft(draft, session, sampling, threads=threads) as its_draft,
        ):
            for prompt, number in product(range(len(prompts)), range(n_samples)):
                completions.append(_along(session, its_draft, sampling, plan, prompt, number))
                if progress:
                    progress(len(completions), plan.n_completions)
    return Record(completions, max_tokens, sampling.temperature > 0)


def _along(session: Session, draft: Draft, sampling: Sampling, plan: Plan, prompt: int, number: int) -> Along:
    ends = frozenset(session.model.vocabulary.end_tokens().tolist())
    said, tokens = [], plan.prompts[prompt].tolist()
    most = min(plan.max_tokens, plan.n_ctx + 1 - len(tokens))
    session.roll_back(0, 0)
    draft.begin()
    logits = session.extend(0, plan.prompts[prompt])
    for n in range(most):
        if n % SPAN == 0:  # as behind a round: of later tokens a draft has its own keys and values
            draft.keep(len(tokens) - 1)
        numbers = Numbers(sampling.seed, prompt << 32 | number, n)
        proposed = draft.propose(tokens, None, numbers.other(0, DRAFT))
        (verified,) = verify([proposed] if proposed else [], [None], logits[None], sampling, numbers)
        if not np.isfinite(verified.log_p):
            raise ModelFileError(f"{session.model.path}: its logits are not numbers")
        said.append(Said(proposed.sure if proposed else None, verified.accepted))
        tokens.append(verified.token)
        if verified.token in ends:
            return Along(said, ended=True)
        if n + 1 < most:
            logits = session.extend(0, np.array(tokens[-1:], np.int32))
    return Along(said, ended=False)
