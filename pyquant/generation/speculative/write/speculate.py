"""Write texts with a target and a draft: what is drafted is verified in one pass of the target."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import ModelFileError
from pyquant.generation.grammar.engine import Compiled, State
from pyquant.generation.sampling.generate import OnToken, Plan
from pyquant.generation.sampling.result import CONTEXT, DEAD_END, END, LENGTH, Sample
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.policies.costs import unread_after
from pyquant.generation.speculative.policies.ledger import Ledger
from pyquant.generation.speculative.policies.policy import LONGEST, Decision, Policy, Round
from pyquant.generation.speculative.write.draft import Draft, Drafted
from pyquant.generation.speculative.write.result import DraftedText
from pyquant.generation.speculative.write.verify import Mask, Numbers, Verified, verify


@dataclass
class _Writing:
    """A text that is being written.

    tokens: the prompt's and its own. room: tokens that it may have. unread: those that the draft has to read
    before it drafts.
    """

    text: DraftedText
    tokens: list[int]
    room: int
    state: State | None
    on_token: OnToken | None
    unread: int


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
        How far drafts go. Where tokens are sampled, one that the policy would drop is kept: to drop tokens
        for what they are would change how often they come.
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
        vocabulary = session.model.vocabulary
        self._ends = frozenset(vocabulary.end_tokens().tolist())
        self._pieces = vocabulary.pieces()

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
        text = DraftedText(Sample(prompt, plan.names[prompt], number))
        tokens = plan.prompts[prompt].tolist()
        room = min(plan.max_tokens, plan.n_ctx + 1 - len(tokens))
        state = self._grammar.start() if self._grammar is not None else None
        writing = _Writing(text, tokens, room, state, on_token, unread=len(tokens) + 1)
        self._session.roll_back(0, 0)
        if self._draft is not None:
            self._draft.begin()
        logits = self._session.extend(0, plan.prompts[prompt])
        text.prompt_seconds = time.perf_counter() - begin
        self._verify(writing, [], [self._mask(state)], logits[None])
        while not text.sample.finish:
            self._round(writing)
        if text.sample.finish == LENGTH and room < plan.max_tokens:
            text.sample.finish = CONTEXT
        text.seconds = time.perf_counter() - begin
        if self._draft is not None:
            text.draft_seconds = self._draft.seconds
            text.policy_seconds += self._draft.sure_seconds
        return text

    def forget(self) -> None:
        """Forget what drafts have saved or lost so far."""
        self._ledger = Ledger()

    def _round(self, writing: _Writing) -> None:
        """Draft, verify, and go back to where both models agree."""
        text, n_before = writing.text, len(writing.tokens)
        began = time.perf_counter()
        drafted, masks, n_calls = self._drafted(writing)
        begin = time.perf_counter()
        given = [writing.tokens[-1], *(token.token for token in drafted)][: len(masks)]
        logits = self._session.follow(0, np.array(given, np.int32))
        n_accepted = self._verify(writing, drafted, masks, logits)
        self._session.roll_back(0, n_before + n_accepted)
        if self._draft is not None:
            self._draft.keep(n_before + n_accepted)
        text.rounds.append((len(drafted), n_accepted))
        writing.unread = unread_after(writing.unread, n_calls, n_accepted)
        end = time.perf_counter()
        text.spent.append((n_calls, end - began))
        self._ledger.add(n_calls, n_accepted + 1, end - began)
        text.verify_seconds += end - begin

    def _drafted(self, writing: _Writing) -> tuple[list[Drafted], list[Mask], int]:
        """Draft as far as the policy wants; return tokens, masks as `verify` takes them, and drafted ones."""
        text, tokens, state = writing.text, list(writing.tokens), writing.state
        numbers = Numbers.of(self._sampling, text.sample)
        drafted: list[Drafted] = []
        masks = [self._mask(state)]
        room = writing.room - len(text.sample.tokens)
        known = Round(previous=text.rounds, unread=writing.unread, room=room, ledger=self._ledger)
        n_most = 0 if self._draft is None else min(LONGEST, room - 1)
        while len(drafted) < n_most and len(masks) > len(drafted):
            if (decision := self._decide(text, known)) != Decision.MORE:
                if decision == Decision.DROP and drafted and self._sampling.temperature == 0:
                    drafted.pop()
                    masks.pop()
                    if state is not None:
                        state.roll_back(1)
                break
            assert self._draft is not None
            proposed = self._draft.propose(tokens, masks[-1], numbers.draft(len(drafted)))
            if proposed is None:
                break
            drafted.append(proposed)
            tokens.append(proposed.token)
            known.entropies.append(proposed.entropy)
            known.top_p.append(proposed.top_p)
            known.token_p.append(proposed.token_p)
            if proposed.token not in self._ends and _goes_on(state, proposed.token):
                masks.append(self._mask(state))
        if state is not None:
            state.roll_back(sum(token.token not in self._ends for token in drafted))
        return drafted, masks, len(known.entropies)

    def _decide(self, text: DraftedText, known: Round) -> Decision:
        begin = time.perf_counter()
        decision = self._policy(known)
        text.policy_seconds += time.perf_counter() - begin
        return decision

    def _mask(self, state: State | None) -> Mask:
        if state is None or self._grammar is None:
            return None
        words = np.empty(self._grammar.n_words, np.int32)
        state.mask(words)
        return words

    def _verify(
        self, writing: _Writing, drafted: list[Drafted], masks: list[Mask], logits: NDArray[np.float32]
    ) -> int:
        """Take what is verified; return how many tokens are accepted."""
        numbers = Numbers.of(self._sampling, writing.text.sample)
        n_accepted = 0
        for verified in verify(drafted, masks, logits, self._sampling, numbers):
            self._take(writing, verified)
            n_accepted += verified.accepted
            if writing.text.sample.finish:
                break
        return n_accepted

    def _take(self, writing: _Writing, verified: Verified) -> None:
        sample, state, token = writing.text.sample, writing.state, verified.token
        if not np.isfinite(verified.log_p):
            raise ModelFileError(f"{self._session.model.path}: its logits are not numbers")
        if token < 0:
            sample.finish = DEAD_END
            return
        sample.log_p.append(verified.log_p)
        if token in self._ends:
            sample.finish = END
            return
        sample.tokens.append(token)
        sample.data += self._pieces[token]
        writing.tokens.append(token)
        if not _goes_on(state, token):
            sample.finish = END
        elif len(sample.tokens) == writing.room:
            sample.finish = LENGTH
        if writing.on_token:
            writing.on_token(sample, self._pieces[token])


def _goes_on(state: State | None, token: int) -> bool:
    """Take a token in the grammar; return whether anything may follow."""
    if state is None:
        return True
    state.advance(token)
    return not state.must_end
