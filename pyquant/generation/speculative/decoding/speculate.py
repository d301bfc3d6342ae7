"""Generate completions with a target and a draft: what is drafted is verified in one pass of the target."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import ModelFileError
from pyquant.generation.grammar.engine import Compiled, State
from pyquant.generation.sampling.generate import OnToken, Plan
from pyquant.generation.sampling.result import CONTEXT, DEAD_END, END, LENGTH, Sample
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.decoding.draft import Draft, Drafted
from pyquant.generation.speculative.decoding.result import DraftedCompletion
from pyquant.generation.speculative.decoding.verify import DRAFT, Mask, Numbers, Verified, verify
from pyquant.generation.speculative.policies.certainty import Certainty
from pyquant.generation.speculative.policies.learned import Learned
from pyquant.generation.speculative.policies.online_costs import Spent
from pyquant.generation.speculative.policies.policy import Decision, Policy, Round
from pyquant.generation.speculative.rounds import play


class Speculation:
    """Generates completions, one after the other.

    Parameters
    ----------
    session
        Of the target, with one sequence.
    draft
        For the target's vocabulary; None: the target generates alone.
    sampling
        How the target draws; the draft has the same settings.
    policy, grammar
        How far drafts go, and what completions keep to, compiled for the target's vocabulary.
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
        self._policy, self._grammar, self._learned = policy, grammar, Learned()

    def completions(self, plan: Plan, on_token: OnToken | None = None) -> Iterator[DraftedCompletion]:
        """Generate the plan's completions, and yield each when it is whole; on_token is called as they grow.

        Raises ModelFileError, and GrammarError where the grammar's engine gives up.
        """
        for prompt, number in product(range(len(plan.prompts)), range(plan.n_samples)):
            yield self.complete(plan, prompt, number, on_token)

    def complete(
        self, plan: Plan, prompt: int, number: int = 0, on_token: OnToken | None = None
    ) -> DraftedCompletion:
        """Generate a completion of a plan. Raises what `completions` does."""
        begin = time.perf_counter()
        live = _LiveCompletion(
            self._session, self._draft, self._sampling, self._grammar, plan, prompt, number, on_token
        )
        result = live.result

        def decide(known: Round) -> Decision:
            asked = time.perf_counter()
            decision = self._policy(known)
            result.policy_seconds += time.perf_counter() - asked
            return decision

        result.rounds += play(live, decide, self._learned)
        result.seconds = time.perf_counter() - begin
        if self._draft is not None:
            result.draft_seconds = self._draft.seconds
            result.policy_seconds += self._draft.sure_seconds
        return result

    def forget(self) -> None:
        """Forget what was learned of seconds and acceptance rates."""
        self._learned = Learned()


class _LiveCompletion:
    """A `rounds.Completion` behind its first token.

    Where a draft draws its tokens, one that a policy would drop is kept: to drop tokens for what they are
    would change how often they come.
    """

    def __init__(
        self,
        session: Session,
        draft: Draft | None,
        sampling: Sampling,
        grammar: Compiled | None,
        plan: Plan,
        prompt: int,
        number: int,
        on_token: OnToken | None,
    ) -> None:
        begin = time.perf_counter()
        self.result = DraftedCompletion(Sample(prompt, plan.names[prompt], number))
        self.drops = draft is None or not draft.draws
        self._session, self._draft, self._sampling, self._grammar = session, draft, sampling, grammar
        vocabulary = session.model.vocabulary
        self._ends, self._pieces = frozenset(vocabulary.end_tokens().tolist()), vocabulary.pieces()
        self._on_token = on_token
        self._tokens = plan.prompts[prompt].tolist()  # and the completion's own, and drafted ones
        self._stops = plan.stops
        self._most = min(plan.max_tokens, plan.n_ctx + 1 - len(self._tokens))
        self._at_most = LENGTH if self._most == plan.max_tokens else CONTEXT
        self._state = grammar.start() if grammar is not None else None
        self.reads = draft is None or not draft.takes
        self.unread = len(self._tokens) + 1 if self.reads else 1
        session.roll_back(0, 0)
        if draft is not None:
            draft.begin()
        logits = session.extend(0, plan.prompts[prompt])
        self.result.prompt_seconds = time.perf_counter() - begin
        self._first = self._further = 0.0
        self._begin_round()
        self._take_all(logits[None])
        self._begin_round()

    @property
    def done(self) -> bool:
        return bool(self.result.sample.finish)

    @property
    def room(self) -> int:
        return self._most - len(self.result.sample.tokens)

    @property
    def goes_on(self) -> bool:
        n_drafted = len(self._drafted)  # a pass brings one token more, and nothing follows an end
        return self._draft is not None and n_drafted < self.room - 1 and n_drafted < len(self._masks)

    def propose(self) -> Certainty | None:
        assert self._draft is not None
        begin, n_before = time.perf_counter(), len(self._drafted)
        proposed = self._draft.propose(self._tokens, self._masks[-1], self._numbers.other(n_before, DRAFT))
        if n_before:
            self._further += time.perf_counter() - begin
        else:
            self._first = time.perf_counter() - begin
        if proposed is None:
            return None
        self._drafted.append(proposed)
        self._tokens.append(proposed.token)
        if proposed.token not in self._ends and _goes_on(self._state, proposed.token):
            self._masks.append(self._mask())
        return proposed.sure

    def drop(self) -> None:
        for behind in (self._drafted, self._tokens, self._masks):
            behind.pop()
        if self._state is not None:
            self._state.roll_back(1)

    def verify(self) -> tuple[int, Spent]:
        """Let the target read what was drafted, and go back to where both agree."""
        begin, n_drafted = time.perf_counter(), len(self._drafted)
        n_before = len(self._tokens) - n_drafted
        if self._state is not None:
            self._state.roll_back(sum(token.token not in self._ends for token in self._drafted))
        given = self._tokens[n_before - 1 :][: len(self._masks)]
        del self._tokens[n_before:]
        logits = self._session.follow(0, np.array(given, np.int32))
        n_accepted = self._take_all(logits)
        self._session.roll_back(0, n_before + n_accepted)
        if self._draft is not None:
            self._draft.keep(n_before + n_accepted)
        end = time.perf_counter()
        self.result.verify_seconds += end - begin
        verify = end - self._began - self._first - self._further
        spent = Spent(self._first, self._further, verify)
        self._begin_round()
        return n_accepted, spent

    def _begin_round(self) -> None:
        self._began, self._first, self._further = time.perf_counter(), 0.0, 0.0
        self._numbers = Numbers.of(self._sampling, self.result.sample)
        self._drafted: list[Drafted] = []
        self._masks: list[Mask] = [] if self.done else [self._mask()]  # before each drafted token, and behind

    def _mask(self) -> Mask:
        if self._state is None or self._grammar is None:
            return None
        words = np.empty(self._grammar.n_words, np.int32)
        self._state.mask(words)
        return words

    def _take_all(self, logits: NDArray[np.float32]) -> int:
        """Take what is verified; return how many tokens are accepted."""
        n_accepted = 0
        for verified in verify(self._drafted, self._masks, logits, self._sampling, self._numbers):
            self._take(verified)
            n_accepted += verified.accepted
            if self.done:
                break
        return n_accepted

    def _take(self, verified: Verified) -> None:
        sample, token = self.result.sample, verified.token
        if not np.isfinite(verified.log_p):
            raise ModelFileError(f"{self._session.model.path}: its logits are not numbers")
        if token < 0:
            sample.finish = DEAD_END
            return
        sample.log_p.append(verified.log_p)
        if token in self._ends:
            sample.finish = END
            return
        sample.add(token, self._pieces[token], self._stops)
        self._tokens.append(token)
        goes_on = _goes_on(self._state, token)
        if sample.finish:  # by a text that stops it
            return
        if not goes_on:
            sample.finish = END
        elif self.room == 0:
            sample.finish = self._at_most
        if self._on_token:
            self._on_token(sample, self._pieces[token])


def _goes_on(state: State | None, token: int) -> bool:
    """Take a token in the grammar; return whether anything may follow."""
    if state is None:
        return True
    state.advance(token)
    return not state.must_end
