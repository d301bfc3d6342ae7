"""Sequences that go back: what follows is what a model says that has read the same tokens afresh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pyquant.errors import ConfigError
from pyquant.generation.grammar.engines import make_engine
from pyquant.generation.grammar.grammar import Grammar, Language
from pyquant.generation.sampling.exactly import generate_exactly
from pyquant.generation.sampling.generate import generate, make_plan
from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.result import END
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.decoding.pair import open_draft
from pyquant.llama.model import Model
from tests.support.command import run
from tests.support.families import FAMILIES

LONG = 1000  # tokens: more than a window of 32 and a batch of 512 keep
FREE = Sampling(temperature=1, top_k=0, top_p=1, min_p=0, seed=3)


@pytest.fixture(scope="module", params=["Gemma 2", "Mamba", "Llama"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = FAMILIES[request.param].write(tmp_path_factory.mktemp("going_back") / "model.gguf")
    with Model(path) as model:
        yield model


def tokens(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(3, 250, n).astype(np.int32)


@pytest.mark.parametrize("length", [1, 40, 900, LONG - 1])
def test_what_follows_is_what_follows_a_fresh_text(model: Model, length: int) -> None:
    """llama.cpp issue 13833: a window's cache holds window + batch cells; going back further is silent."""
    with (
        Session(model, 1, LONG + 100, threads=1) as session,
        Session(model, 1, LONG + 100, threads=1) as fresh,
    ):
        session.extend(0, tokens(LONG))
        session.roll_back(0, length)
        assert session.lengths.tolist() == [length]
        fresh.extend(0, tokens(LONG)[:length])
        for token in tokens(3, seed=1):
            given = np.zeros(1, np.int64), np.array([token], np.int32)
            logits = session.step(*given)[0].copy()
            np.testing.assert_allclose(logits, fresh.step(*given)[0], atol=2e-2)


def test_copies_go_back_to_their_own_text(model: Model) -> None:
    with Session(model, 2, LONG + 100, threads=1) as session:
        session.extend(0, tokens(40))
        session.copy(0, 1)
        session.extend(1, tokens(LONG - 40, seed=2))
        session.roll_back(1, 20)
        both = session.step(np.array([0, 1]), np.array([5, 5], np.int32)).copy()
        session.roll_back(0, 20)
        session.roll_back(1, 20)
        same = session.step(np.array([0, 1]), np.array([5, 5], np.int32))
        np.testing.assert_allclose(same[0], same[1], atol=2e-2)
        assert abs(both[0] - both[1]).max() > 0.1


def test_prompts_that_share_a_beginning_go_back_to_it(model: Model) -> None:
    """Questions of `structured` share their examples."""
    prompts = [np.append(tokens(20), tokens(LONG, seed=3)), np.append(tokens(20), tokens(60, seed=4))]
    plan = make_plan(model, [Prompt("a"), Prompt("b")], max_tokens=3, n_parallel=1, n_ctx=LONG + 100)
    plan = type(plan)(prompts, ["a", "b"], 1, 3, 1, LONG + 100, n_shared=20)
    texts = {sample.name: sample for sample in generate(model, plan, FREE, threads=1)}
    alone = type(plan)(prompts[1:], ["b"], 1, 3, 1, LONG + 100)
    with Session(model, 1, LONG + 100, threads=1) as fresh:
        logits = fresh.extend(0, prompts[1])
    log_p = logits.astype(float) - np.logaddexp.reduce(logits.astype(float))
    assert alone.n_completions == 1
    assert texts["b"].log_p[0] == pytest.approx(log_p[texts["b"].tokens[0]], abs=2e-2)


def test_exact_texts_are_written_by_models_that_keep_a_state(model: Model) -> None:
    grammar = make_engine("llguidance", model.vocabulary).compile(Grammar(Language.REGEX, "[a-z]{1,2}"))
    plan = make_plan(model, [Prompt("the")], max_tokens=4)
    plan = type(plan)(plan.prompts, plan.names, 2, 4, 1, plan.n_ctx)
    samples = list(generate_exactly(model, plan, FREE, grammar, threads=1, most_attempts=3000))
    assert [sample.finish for sample in samples] == [END, END]


@pytest.mark.parametrize("model", ["Mamba"], indirect=True)
def test_recurrent_models_are_refused_before_a_token_is_drafted(model: Model) -> None:
    assert model.has_states
    with Session(model, 1, 64, threads=1) as session:
        for draft in ("ngram", model.path):
            with pytest.raises(ConfigError, match=r"model\.gguf: is recurrent: .* generate without --draft"):
                open_draft(draft, session, FREE).__enter__()


@pytest.mark.ci
def test_nothing_is_written_before_the_refusal(tmp_path: Path) -> None:
    path = FAMILIES["Mamba"].write(tmp_path / "mamba.gguf")
    done = run("generate", path, "-p", "the", "--draft", "ngram", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "mamba.gguf: is recurrent" in done.stderr
