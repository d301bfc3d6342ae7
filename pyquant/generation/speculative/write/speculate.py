"""Write texts with a target and a draft: what is drafted is verified in one pass of the target."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product

from pyquant.generation.grammar.engine import Compiled
from pyquant.generation.sampling.generate import OnToken, Plan
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.policies.ledger import Ledger
from pyquant.generation.speculative.policies.policy import Decision, Policy, Round
from pyquant.generation.speculative.rounds import play
from pyquant.generation.speculative.write.draft import Draft
from pyquant.generation.speculative.write.live import LiveText
from pyquant.generation.speculative.write.result import DraftedText


class Speculation:
    """Writes texts, one after the other.

    Parameters
    ----------
    session
        Of the target, with one sequence.
    draft
        For the target's vocabulary; None: the target writes alone.
    sampling
        How the target draws; the draft has the same settings.
    policy
        How far drafts go.
    grammar
        What texts keep to, compiled for the target's vocabulary.
    """

    def __init__(
        self,
        session: Session,
        draft: Draft | None,
        sampling: Sampling,
        policy: Policy,
        *,
        grammar: Compiled | None = None,
    ) -> None:
        self._session, self._draft, self._sampling = session, draft, sampling
        self._policy, self._grammar, self._ledger = policy, grammar, Ledger()

    def texts(self, plan: Plan, on_token: OnToken | None = None) -> Iterator[DraftedText]:
        """Write the plan's texts, and yield each when it is complete.

        Parameters
        ----------
        plan
        on_token
            Called as texts grow.

        Raises
        ------
        ModelFileError
        GrammarError
            The grammar's engine gives up.
        """
        for prompt, number in product(range(len(plan.prompts)), range(plan.n_samples)):
            yield self.write(plan, prompt, number, on_token)

    def write(self, plan: Plan, prompt: int, number: int = 0, on_token: OnToken | None = None) -> DraftedText:
        """Write a text of a plan. Raises what `texts` does."""
        begin = time.perf_counter()
        live = LiveText(
            self._session, self._draft, self._sampling, self._grammar, plan, prompt, number, on_token
        )
        text = live.text

        def decide(known: Round) -> Decision:
            asked = time.perf_counter()
            decision = self._policy(known)
            text.policy_seconds += time.perf_counter() - asked
            return decision

        text.rounds += play(live, decide, self._ledger)
        text.seconds = time.perf_counter() - begin
        if self._draft is not None:
            text.draft_seconds = self._draft.seconds
            text.policy_seconds += self._draft.sure_seconds
        return text

    def forget(self) -> None:
        """Forget what drafts have saved or lost so far."""
        self._ledger = Ledger()
