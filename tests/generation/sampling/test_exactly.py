"""The exact conditional distribution: against all completions of a small vocabulary, and on a model."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from pyquant import data
from pyquant.errors import ConfigError
from pyquant.generation.grammar.engines import make_engine
from pyquant.generation.grammar.grammar import Grammar, Language
from pyquant.generation.sampling import exactly
from pyquant.generation.sampling.exactly import generate_exactly
from pyquant.generation.sampling.generate import Plan, make_plan
from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.result import END, REFUSED
from pyquant.generation.sampling.sampling import Sampling
from pyquant.llama.model import Model

FREE = Sampling(temperature=1, top_k=0, top_p=1, min_p=0, seed=3)
N_VOCAB, MAX_TOKENS, ENDS = 5, 3, 0


def logits_after(tokens: tuple[int, ...]) -> np.ndarray:
    """Logits of a model with a small vocabulary: any, but always the same after a completion."""
    return np.random.default_rng([7, *tokens]).normal(0, 1.5, N_VOCAB).astype(np.float32)


class SmallSession:
    """The model's sessions; counts tokens that it computes."""

    def __init__(self, model: object, n_sequences: int, n_ctx: int, *, threads: int | None = None) -> None:
        self.model, self.n_ctx, self._tokens = model, n_ctx, ()

    def extend(self, sequence: int, tokens: np.ndarray) -> np.ndarray:
        return logits_after(())

    def step(self, sequences: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        self._tokens += (int(tokens[0]),)
        return logits_after(self._tokens)[None]

    def roll_back(self, sequence: int, length: int) -> None:
        self._tokens = self._tokens[: max(0, length - 1)]  # the prompt is a token

    def __enter__(self) -> SmallSession:
        return self

    def __exit__(self, *error: object) -> None:
        pass


PIECES = [b"", b"a", b"b", b"c", b"d"]
VOCABULARY = SimpleNamespace(
    n_tokens=N_VOCAB, end_tokens=lambda: np.array([ENDS]), pieces=lambda: list(PIECES)
)
MODEL = SimpleNamespace(vocabulary=VOCABULARY)
PLAN = Plan([np.ones(1, np.int32)], [""], 4000, MAX_TOKENS, 1, 16)


class Rising:
    """Tokens that never fall, and no two 3s in a row; a completion may end after a 2 or a 4."""

    n_words = 1

    def __init__(self, tokens: tuple[int, ...] = ()) -> None:
        self._tokens = tokens

    def start(self) -> Rising:
        return Rising()

    def allowed(self) -> list[int]:
        last = self._tokens[-1] if self._tokens else 1
        following = [token for token in range(last, N_VOCAB) if not token == last == 3]
        return following + ([ENDS] if self._tokens and last in (2, 4) else [])

    def mask(self, words: np.ndarray) -> None:
        words[0] = sum(1 << token for token in self.allowed())

    def advance(self, token: int) -> None:
        self._tokens += (token,)


def every_text() -> dict[tuple[int, ...], float]:
    """All completions of the grammar and their probabilities, given that a completion is one of them."""
    found = {}
    for n in range(1, MAX_TOKENS + 1):
        for tokens in product(range(1, N_VOCAB), repeat=n):
            p = 1.0
            for i, token in enumerate([*tokens, ENDS]):
                weights = np.exp(logits_after(tokens[:i]).astype(np.float64))
                p *= weights[token] / weights.sum() * (token in Rising(tokens[:i]).allowed())
            if p:
                found[tokens] = p
    return {tokens: p / sum(found.values()) for tokens, p in found.items()}


def p_value(texts: list[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> float:
    from scipy.stats import chisquare

    assert set(texts) <= set(expected)
    counts = np.array([texts.count(tokens) for tokens in expected])
    return chisquare(counts, np.array(list(expected.values())) * len(texts)).pvalue


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactly, "Session", SmallSession)


@pytest.mark.ci
@pytest.mark.parametrize("adapt", [False, True])
def test_completions_come_as_often_as_the_model_generates_them(small: None, adapt: bool) -> None:
    expected = every_text()
    assert len(expected) > 10
    texts = list(generate_exactly(MODEL, PLAN, FREE, Rising(), adapt=adapt))
    assert all(text.finish == END for text in texts)
    assert p_value([tuple(text.tokens) for text in texts], expected) > 1e-3


@pytest.mark.ci
def test_masks_alone_give_other_frequencies() -> None:
    expected = every_text()
    rng, texts = np.random.default_rng(1), []
    while len(texts) < PLAN.n_samples:
        tokens: tuple[int, ...] = ()
        while len(tokens) <= MAX_TOKENS:
            allowed = Rising(tokens).allowed()
            weights = np.exp(logits_after(tokens)[allowed].astype(np.float64))
            token = int(rng.choice(allowed, p=weights / weights.sum()))
            if token == ENDS:
                texts.append(tokens)
                break
            tokens += (token,)
    assert p_value(texts, expected) < 1e-9


@pytest.mark.slow
def test_attempts_learn(small: None) -> None:
    plain, learned = (
        sum(text.attempts for text in generate_exactly(MODEL, PLAN, FREE, Rising(), adapt=adapt))
        for adapt in (False, True)
    )
    assert plain > 2 * PLAN.n_samples
    assert learned < 1.02 * PLAN.n_samples  # as few completions as these are known soon


def test_a_grammar_without_completions_is_given_up(small: None) -> None:
    class Nothing(Rising):
        def start(self) -> Nothing:
            return self

        def mask(self, words: np.ndarray) -> None:
            words[0] = 0

    plan = Plan(PLAN.prompts, PLAN.names, 2, MAX_TOKENS, 1, 16)
    for text in generate_exactly(MODEL, plan, FREE, Nothing()):
        assert (text.finish, text.tokens, text.attempts) == (REFUSED, [], 1)


@pytest.mark.ci
def test_attempts_are_bounded(small: None) -> None:
    texts = list(generate_exactly(MODEL, PLAN, FREE, Rising(), adapt=False, most_attempts=2))
    assert {text.attempts for text in texts} == {1, 2}
    refused = [text for text in texts if text.finish == REFUSED]
    assert refused
    assert all(
        sample.tokens == sample.log_p == sample.allowed == [] and not sample.data for sample in refused
    )


def test_a_models_completions_keep_to_the_grammar() -> None:
    """The model hardly ever ends a completion, so free ones rarely keep to the grammar; attempts learn it."""
    with Model(data.model_path()) as model:
        compiled = make_engine("llguidance", model.vocabulary).compile(Grammar(Language.REGEX, "[127]"))
        plan = make_plan(model, [Prompt("x = ")], n_samples=5, max_tokens=4)
        runs = [list(generate_exactly(model, plan, FREE, compiled, threads=2)) for _ in range(2)]
    texts = runs[0]
    assert runs[1] == texts
    assert all(text.finish == END and text.text in ("1", "2", "7") for text in texts)
    assert all(len(text.allowed) == len(text.log_p) == 2 for text in texts)
    assert sum(text.attempts for text in texts) < 100
    assert sum(text.n_run for text in texts) <= 3 * sum(text.attempts for text in texts)


def test_completions_that_the_model_hardly_generates_are_found() -> None:
    """Their probability is less than what rounding leaves of 1, and its shares are right."""
    with Model(data.model_path()) as model:
        compiled = make_engine("llguidance", model.vocabulary).compile(Grammar(Language.REGEX, "[ab]zqxjk"))
        plan = make_plan(model, [Prompt("x = ")], n_samples=3, max_tokens=8)
        texts = list(generate_exactly(model, plan, FREE, compiled, threads=1))
    assert all(text.finish == END and text.text in ("azqxjk", "bzqxjk") for text in texts)
    assert all(sum(text.log_p) < np.log(np.finfo(float).eps) for text in texts)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0, top_k=0, top_p=1, min_p=0)])
def test_what_leaves_out_tokens_is_refused(small: None, sampling: Sampling) -> None:
    with pytest.raises(ConfigError, match="exact: needs a temperature above 0, top-k 0, top-p 1 and min-p 0"):
        next(generate_exactly(MODEL, PLAN, sampling, Rising()))
