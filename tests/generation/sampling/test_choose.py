"""Keeping to a grammar: the distribution is what masking gives, whichever way it is come by."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pyquant import data
from pyquant.errors import GrammarError
from pyquant.generation.grammar.engines import make_engine
from pyquant.generation.grammar.grammar import Grammar, Language
from pyquant.generation.sampling.choose import Chooser
from pyquant.generation.sampling.generate import generate, make_plan
from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.result import DEAD_END, END, Sample
from pyquant.generation.sampling.sampling import Sampling
from pyquant.llama.model import Model

FREE = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
LIST = Grammar(Language.REGEX, r"\[[0-9]+(, [0-9]+)*\]")


class Fixed:
    """A grammar that always allows the same tokens, and counts the masks that it makes."""

    n_words = 1

    def __init__(self, allowed: set[int]) -> None:
        self.allowed, self.n_masks = allowed, 0
        self.may_end = self.must_end = False

    def start(self) -> Fixed:
        return self

    def mask(self, words: np.ndarray) -> None:
        self.n_masks += 1
        words[0] = sum(1 << token for token in self.allowed)

    def allows(self, token: int) -> bool:
        return token in self.allowed


P = np.array([0.5, 0.2, 0.15, 0.1, 0.05])


@pytest.mark.ci
@pytest.mark.parametrize("measure", [False, True])
@pytest.mark.parametrize(
    ("settings", "expected"),
    [(FREE, [0, 0.2, 0.15, 0.1, 0]), ({**FREE, "top_p": 0.7}, [0, 0.2, 0.15, 0, 0])],
)
def test_tokens_come_as_often_as_masking_lets_them(
    settings: dict, expected: list[float], measure: bool
) -> None:
    from scipy.stats import chisquare

    grammar, n = Fixed({1, 2, 3}), 20_000
    logits = np.log(P)[None].astype(np.float32)
    with Chooser(Sampling(**settings, seed=1), [grammar], 1, measure_mask=measure) as chooser:
        counts = np.zeros(5)
        for number in range(n):
            text = chooser.begin(Sample(0, "", number))
            chooser.prepare([text])
            drawn = chooser.choose([text], logits)
            counts[drawn.tokens[0]] += 1
            if measure:
                assert drawn.allowed[0] == pytest.approx(0.45)
    share = np.array(expected) / sum(expected)
    kept = share > 0
    assert counts[~kept].sum() == 0
    assert chisquare(counts[kept], share[kept] * n).pvalue > 1e-4
    # Masks are only made where they are needed: for the half of all tokens that is refused.
    assert grammar.n_masks == n if measure or settings["top_p"] < 1 else abs(grammar.n_masks - 0.55 * n) < 500


def texts(settings: dict, *, measure: bool = False, grammar: Grammar = LIST, n: int = 6) -> list[Sample]:
    with Model(data.model_path()) as model:
        compiled = make_engine("llguidance", model.vocabulary).compile(grammar)
        plan = make_plan(model, [Prompt("x = ")], n_samples=n, max_tokens=12, n_parallel=4)
        samples = generate(model, plan, Sampling(**settings), grammar=compiled, measure_mask=measure)
        return sorted(samples, key=lambda sample: sample.number)


@pytest.mark.parametrize("settings", [FREE, {**FREE, "temperature": 0.0}, {**FREE, "top_p": 0.9}])
def test_measuring_masks_changes_no_completion(settings: dict) -> None:
    plain, measured = texts(settings), texts(settings, measure=True)
    assert [sample.tokens for sample in plain] == [sample.tokens for sample in measured]
    assert all(len(sample.allowed) == len(sample.log_p) for sample in measured)
    assert all(0 < share <= 1 for sample in measured for share in sample.allowed)


def test_completions_keep_to_the_grammar_and_end_where_nothing_follows() -> None:
    samples = texts(FREE)
    whole = [sample for sample in samples if sample.finish == END]
    assert whole
    for sample in whole:
        assert re.fullmatch(r"\[[0-9]+(, [0-9]+)*\]", sample.text)


def test_a_place_where_no_token_can_follow_is_told() -> None:
    # U+10FFFF can be spelled by bytes alone, of which this vocabulary has all; so a grammar of one's own.
    with Model(data.model_path()) as model:
        nowhere = Fixed(set())
        nowhere.n_words = -(-model.n_vocab // 32)
        nowhere.mask = lambda words: words.fill(0)
        plan = make_plan(model, [Prompt("x")])
        (sample,) = generate(model, plan, Sampling(**FREE), grammar=nowhere)
    assert (sample.finish, sample.tokens) == (DEAD_END, [])


def test_an_engine_that_gives_up_says_so() -> None:
    class Weary(Fixed):
        def mask(self, words: np.ndarray) -> None:
            raise GrammarError("too many items")

    with Model(data.model_path()) as model:
        weary = Weary(set())
        weary.n_words = -(-model.n_vocab // 32)
        plan = make_plan(model, [Prompt("x")])
        with pytest.raises(GrammarError, match="too many items"):
            next(generate(model, plan, Sampling(top_p=0.5), grammar=weary))
