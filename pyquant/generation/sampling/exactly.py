"""Draw completions of a grammar as often as the model generates them: the exact conditional distribution.

A mask shares the probability of refused tokens among the others, token by token. So a completion does not
come as often as the model generates it (Park et al., "Grammar-Aligned Decoding", 2024). Rejection sampling is
exact: generate freely, and throw away what is no completion of the grammar. It may take long, so attempts
learn from refusals (constrained adaptive rejection sampling, CARS, arXiv 2510.01902). A tree of the
beginnings that were tried keeps how much of each one's probability may still end as a completion of the
grammar, at most. The next attempt draws a token by its probability times that share. What is accepted has the
same distribution.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pyquant import limits
from pyquant.errors import ConfigError, ModelFileError
from pyquant.generation.grammar.engine import Compiled, State, allowed_tokens
from pyquant.generation.sampling.generate import Plan
from pyquant.generation.sampling.result import END, REFUSED, Sample
from pyquant.generation.sampling.sampling import Sampling, uniform
from pyquant.generation.sampling.session import Session
from pyquant.llama.model import Model


@dataclass
class _Beginning:
    """A beginning of completions, in the tree of those that were tried."""

    # The probability, at most, that a completion with this beginning ends as one of the grammar.
    left: float = 1.0
    # Probability that the grammar leaves of next tokens that were not tried; None until it is known.
    untried: float | None = None
    # Of each token that was tried, its probability and the beginning with it.
    next: dict[int, tuple[float, _Beginning]] = field(default_factory=dict)

    @property
    def allowed(self) -> float:
        """Probability that the grammar leaves of the next token."""
        assert self.untried is not None
        return self.untried + sum(p for p, _ in self.next.values())

    def update(self) -> None:
        """Compute `left` from what is left behind each token: by a sum, as a difference loses small ones."""
        assert self.untried is not None
        self.left = self.untried + sum(p * after.left for p, after in self.next.values())


def generate_exactly(
    model: Model,
    plan: Plan,
    sampling: Sampling,
    grammar: Compiled | Sequence[Compiled],
    *,
    adapt: bool = True,
    most_attempts: int = limits.EXACT_ATTEMPTS,
    threads: int | None = None,
    done: Collection[tuple[int, int]] = (),
) -> Iterator[Sample]:
    """Generate the plan's completions, one after the other. One that is cut off is none of the grammar.

    `allowed` of a sample are the shares that masks would have left. Where no attempt is accepted, the sample
    has no tokens, and its `finish` is "refused".

    Parameters
    ----------
    model, plan
    sampling
        Its temperature and seed; it must not leave out tokens.
    grammar
        What completions keep to, compiled for the model's vocabulary: one, or one for each prompt.
    adapt
        Learn from refusals; False: plain rejection sampling.
    most_attempts
        For each completion, after which it is given up.
    threads
        None: all cores.
    done
        As for `generate`.

    Raises
    ------
    ConfigError
        The sampling leaves out tokens, or has temperature 0.
    ModelFileError, GrammarError
        The model cannot be run, or the grammar's engine gives up.
    """
    limits.ATTEMPTS.check("attempts", most_attempts)
    if sampling.truncates or sampling.temperature == 0:
        raise ConfigError("exact: needs a temperature above 0, top-k 0, top-p 1 and min-p 0")
    grammars = grammar if isinstance(grammar, Sequence) else [grammar] * len(plan.prompts)
    with Session(model, 1, plan.n_ctx, threads=threads) as session:
        for index, prompt in enumerate(plan.prompts):
            path = _Path(session, prompt)
            drawer = _Drawer(path, grammars[index], sampling, plan.max_tokens, adapt)
            for number in range(plan.n_samples):
                if (index, number) not in done:
                    yield drawer.draw(Sample(index, plan.names[index], number), most_attempts)


class _Path:
    """Logits after each token of the completion that was tried last: the next one may begin alike."""

    def __init__(self, session: Session, prompt: NDArray[np.int32]) -> None:
        self._session, self._n_prompt = session, len(prompt)
        session.roll_back(0, 0)
        self._tokens: list[int] = []
        self._logits = [session.extend(0, prompt)]
        self.n_run = len(prompt)
        self.model, self.vocabulary = session.model, session.model.vocabulary

    def has_room(self, n_tokens: int) -> bool:
        """Return whether the context has room for a completion of so many tokens."""
        return self._n_prompt + n_tokens < self._session.n_ctx

    def after(self, tokens: list[int]) -> NDArray[np.float32]:
        """Return the logits after a completion that is at most one token longer than what is known of it."""
        if tokens and (len(tokens) > len(self._tokens) or tokens[-1] != self._tokens[len(tokens) - 1]):
            known = len(tokens) - 1
            self._session.roll_back(0, self._n_prompt + known)
            logits = self._session.step(np.zeros(1, np.int64), np.array(tokens[-1:], np.int32))
            self._tokens[known:], self._logits[known + 1 :] = tokens[-1:], [logits[0].copy()]
            self.n_run += 1
        return self._logits[len(tokens)]


class _Drawer:
    """Draws completions that continue one prompt."""

    def __init__(
        self, path: _Path, grammar: Compiled, sampling: Sampling, max_tokens: int, adapt: bool
    ) -> None:
        self._path, self._grammar, self._sampling = path, grammar, sampling
        self._max_tokens, self._adapt = max_tokens, adapt
        self._words = np.empty(grammar.n_words, np.int32)
        self._ends = frozenset(path.vocabulary.end_tokens().tolist())
        self._pieces = path.vocabulary.pieces()
        self._root = _Beginning()

    def draw(self, sample: Sample, most_attempts: int) -> Sample:
        """Attempt until a completion is accepted."""
        before = self._path.n_run
        while not sample.finish:
            sample.attempts += 1
            if self._attempt(sample):
                sample.finish = END
            elif sample.attempts == most_attempts or self._root.left == 0:
                sample.finish = REFUSED
        sample.n_run = self._path.n_run - before
        return sample

    def _attempt(self, sample: Sample) -> bool:
        """Generate a completion; return whether it is accepted. A refused one leaves no tokens."""
        sample.tokens, sample.log_p, sample.allowed, sample.data = [], [], [], b""
        state, beginning = self._grammar.start(), self._root
        tried = [beginning]
        temperature, accepted = self._sampling.temperature, False
        while True:
            logits = self._path.after(sample.tokens)
            if not np.isfinite(logits.max()):
                raise ModelFileError(f"{self._path.model.path}: its logits are not numbers")
            p = _probabilities(logits, temperature)
            mask = self._mask(state)
            weights = p if beginning.untried is None or not self._adapt else _shares(p, mask, beginning)
            token = self._choose(weights, sample)
            fits = token >= 0 and bool(mask[token])
            ends = token in self._ends
            if fits and not ends:
                beginning.next.setdefault(token, (float(p[token]), _Beginning()))
            beginning.untried = _untried(p, mask, beginning)
            if not fits:
                break
            sample.allowed.append(beginning.allowed)
            of_model = p if temperature == 1 else _probabilities(logits, 1.0)
            sample.log_p.append(float(np.log(of_model[token])))
            if ends:
                accepted = True
                break
            full = len(sample.tokens) == self._max_tokens or not self._path.has_room(len(sample.tokens))
            _, after = beginning.next[token]
            if full:
                after.left = 0.0
                break
            sample.tokens.append(token)
            state.advance(token)
            beginning = after
            tried.append(beginning)
        for beginning in reversed(tried):
            beginning.update()
        if not accepted:
            sample.tokens, sample.log_p, sample.allowed = [], [], []
        sample.data = b"".join(self._pieces[token] for token in sample.tokens)
        return accepted

    def _choose(self, weights: NDArray[np.float64], sample: Sample) -> int:
        """Return a token, by its weight; -1 where none has any."""
        sums = weights.cumsum()
        if sums[-1] == 0:
            return -1
        seed, text = self._sampling.seed, sample.prompt << 32 | sample.number
        wanted = uniform(seed, text, len(sample.tokens), sample.attempts) * sums[-1]
        return int(np.searchsorted(sums, min(wanted, np.nextafter(sums[-1], 0)), side="right"))

    def _mask(self, state: State) -> NDArray[np.bool_]:
        state.mask(self._words)
        return allowed_tokens(self._words, self._path.vocabulary.n_tokens)


def _shares(p: NDArray[np.float64], mask: NDArray[np.bool_], beginning: _Beginning) -> NDArray[np.float64]:
    """(n_vocab,) float64: probability of each token times how much of it may end in the grammar."""
    weights = np.where(mask, p, 0.0)
    for token, (_, after) in beginning.next.items():
        weights[token] *= after.left
    return weights


def _untried(p: NDArray[np.float64], mask: NDArray[np.bool_], beginning: _Beginning) -> float:
    left = mask.copy()
    left[list(beginning.next)] = False
    return float(p[left].sum())


def _probabilities(logits: NDArray[np.float32], temperature: float) -> NDArray[np.float64]:
    """(n_vocab,) float64: softmax of logits / temperature."""
    x = logits.astype(np.float64) / temperature
    weights = np.exp(x - x.max())
    return weights / weights.sum()
