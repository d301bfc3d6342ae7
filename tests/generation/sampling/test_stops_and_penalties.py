"""Texts that stop a text, penalties of tokens that came, biases of tokens; with drafts and grammars."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

from pyquant import data
from pyquant.errors import ConfigError
from pyquant.generation.grammar.engines import compile_for
from pyquant.generation.grammar.grammar import Grammar, Language
from pyquant.generation.sampling.generate import generate, make_plan
from pyquant.generation.sampling.penalties import Penalties
from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.result import STOP, Sample
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.decoding.ngram_draft import NgramDraft
from pyquant.generation.speculative.decoding.speculate import Speculation
from pyquant.generation.speculative.policies import make_policy
from pyquant.llama.model import Model
from tests.support.command import run

GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model(data.model_path()) as model:
        yield model


def test_the_earliest_stop_ends_a_text_and_is_left_out() -> None:
    sample = Sample(0, "p", 0)
    for piece in (b"ab", b"c", b"de f"):
        sample.add(7, piece, (b"e f", b"cd", b"zz"))
    assert (sample.data, sample.finish, sample.tokens) == (b"ab", STOP, [7, 7, 7])


def test_a_stop_is_found_across_tokens(model: Model) -> None:
    (free,) = generate(model, make_plan(model, [Prompt("def main(")], max_tokens=24), GREEDY, threads=1)
    stop = free.text[9:13]
    plan = make_plan(model, [Prompt("def main(")], max_tokens=24, stops=["never", stop])
    (stopped,) = generate(model, plan, GREEDY, threads=1)
    assert stopped.finish == STOP
    assert stopped.text == free.text[: free.text.index(stop)]
    assert stopped.tokens == free.tokens[: len(stopped.tokens)]
    with Session(model, 1, plan.n_ctx, threads=1) as session:
        writer = Speculation(session, NgramDraft(), GREEDY, make_policy("fixed:k=3", None))
        (drafted,) = writer.completions(plan)
    assert (drafted.sample.text, drafted.sample.finish) == (stopped.text, STOP)


def test_a_stop_ends_a_text_within_its_grammar(model: Model) -> None:
    grammar = compile_for(model.vocabulary, Grammar(Language.REGEX, "a=[0-9]{30}"))
    plan = make_plan(model, [Prompt("x = ")], max_tokens=40, stops=["="])
    (sample,) = generate(model, plan, GREEDY, grammar=grammar, threads=1)
    assert (sample.text, sample.finish) == ("a", STOP)


def test_an_empty_stop_is_refused(model: Model) -> None:
    with pytest.raises(ConfigError, match="stop: an empty text"):
        make_plan(model, [Prompt("x")], stops=[""])


def test_penalties_are_llama_cpps() -> None:
    """The formulas are llama.h's: l > 0: l / repeat, else l * repeat; then - count * frequency - presence."""
    logits = np.array([2.0, -2.0, 1.0, 4.0, 0.0], np.float32)
    penalties = Penalties({4: 1.5}, repeat=2.0, presence=0.25, frequency=0.5, last=4)
    penalties.apply(logits, [3, 3, 0, 1, 1, 0])
    np.testing.assert_array_equal(logits, np.float32([1 - 1.25, -4 - 1.25, 1, 4, 1.5]))
    everything = np.array([2.0, 1.0], np.float32)
    Penalties(repeat=2.0, last=0).apply(everything, [0] + [1] * 100)
    np.testing.assert_array_equal(everything, np.float32([1, 0.5]))


def test_a_bias_bans_and_forces(model: Model) -> None:
    plan = make_plan(model, [Prompt("def main(")], max_tokens=3)
    (free,) = generate(model, plan, GREEDY, threads=1)
    banned = Penalties({free.tokens[0]: float("-inf")})
    (other,) = generate(model, plan, GREEDY, penalties=banned, threads=1)
    assert free.tokens[0] not in other.tokens
    (forced,) = generate(model, plan, GREEDY, penalties=Penalties({77: 1000.0}), threads=1)
    assert forced.tokens == [77] * 3
    with pytest.raises(ConfigError, match="logit-bias: token 999999 is none of"):
        list(generate(model, plan, GREEDY, penalties=Penalties({999_999: 1.0}), threads=1))


def test_a_penalty_ends_what_repeats(model: Model) -> None:
    plan = make_plan(model, [Prompt("a a a a a a a a")], max_tokens=24)
    (free,) = generate(model, plan, GREEDY, threads=1)
    hard = Penalties(repeat=10.0, presence=50.0, frequency=50.0, last=0)
    (varied,) = generate(model, plan, GREEDY, penalties=hard, threads=1)
    assert len(set(varied.tokens)) == len(varied.tokens) > len(set(free.tokens))


@pytest.mark.ci
def test_options_that_do_not_go_together_are_refused() -> None:
    model = data.model_path()
    for options, message in [
        (["--draft", "ngram", "--repeat-penalty", "1.1"], "give neither --exact nor --draft"),
        (["--regex", "a", "--exact", "--stop", "a"], "no --stop"),
        (["--logit-bias", "a+1"], "logit-bias: 'a+1': expected a token's number and a bias"),
        (["--trigger", "a"], "--trigger needs --grammar"),
        (["--engine", "lr"], "--engine needs --grammar"),
        (["--attempts", "5"], "--attempts needs --exact"),
        (["--repeat-last-n", "5"], "--repeat-last-n needs a penalty"),
        (["--system", "a"], "--system and --chat-template need --chat"),
    ]:
        done = run("generate", model, "-p", "x", *options)
        assert (done.returncode, done.stdout) == (2, ""), options
        assert message in done.stderr


@pytest.mark.ci
def test_the_command_stops_and_asks_by_another_template(tmp_path) -> None:  # type: ignore[no-untyped-def]
    template = tmp_path / "t.jinja"
    template.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}def main(")
    done = run(
        "generate", data.model_path(), "-p", "x", "--chat", "--chat-template", template, "--system", "s",
        "--temperature", 0, "--max-tokens", 24, "--stop", ":", "--json",
    )  # fmt: skip
    line = json.loads(done.stdout)
    assert line["finish"] == "stop"
    assert ":" not in line["text"]
