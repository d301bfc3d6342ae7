"""Runs of policies are told apart by what resamples of their completions say."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from pyquant.generation.speculative.measure.run import FEWEST, PolicyRun, are_apart


def run_of(seconds: np.ndarray) -> PolicyRun:
    texts = [SimpleNamespace(seconds=float(second), n_tokens=1) for second in seconds]
    return PolicyRun("fixed", [texts])  # type: ignore[list-item]


def test_chance_is_told_apart_as_rarely_as_it_says() -> None:
    random = np.random.default_rng(1)
    alike = [[run_of(random.uniform(1, 2, 40)), run_of(random.uniform(1, 2, 40))] for _ in range(200)]
    assert sum(map(are_apart, alike)) <= 20  # 5 % of 200, and chance


def test_completions_of_one_prompt_are_compared_with_each_other() -> None:
    random = np.random.default_rng(1)
    of_prompts = random.uniform(1, 10, 40)  # they differ more than the policies do
    fast, slow = of_prompts * random.uniform(0.9, 1, 40), of_prompts * random.uniform(1, 1.1, 40)
    assert are_apart([run_of(2 * of_prompts), run_of(slow), run_of(fast)])
    assert not are_apart([run_of(2 * of_prompts), run_of(slow), run_of(random.permutation(fast))])


def test_few_prompts_say_nothing_of_chance() -> None:
    """Turns of a prompt are no others: they differ less than prompts do."""
    texts = [SimpleNamespace(seconds=float(second), n_tokens=1) for second in range(1, FEWEST)]
    slow, fast = (PolicyRun("fixed", [[SimpleNamespace(seconds=times * text.seconds, n_tokens=1)
                                       for text in texts]] * 3) for times in (2, 1))  # fmt: skip
    assert not are_apart([slow, fast])
    assert fast.seconds_per_token() == [text.seconds for text in texts]
    assert are_apart([run_of(np.arange(2, 2 * FEWEST + 2, 2)), run_of(np.arange(1, FEWEST + 1))])
