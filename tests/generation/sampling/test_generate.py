"""Completions that models generate: as llama.cpp's own tool does, and whatever is generated beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyquant import data
from pyquant.errors import ConfigError
from pyquant.generation.sampling.generate import generate, make_plan
from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.result import CONTEXT, LENGTH, Sample
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import BATCH, Session
from pyquant.llama.model import Model
from tests.support import ROOT
from tests.support.command import run
from tests.support.models import F32
from tests.support.oracle import Oracle

PROMPTS = [Prompt("def main(", name="code"), Prompt("The module", name="prose")]


def write(
    model: Path, prompts: list[Prompt], sampling: Sampling, **room: Any
) -> dict[tuple[int, int], Sample]:
    with Model(model) as loaded:
        plan = make_plan(loaded, prompts, **room)
        return {(s.prompt, s.number): s for s in generate(loaded, plan, sampling, threads=2)}


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["pylm-5M-f16", "stories260K-f32", "techdocs-5M-f16"])
def test_greedy_completion_is_llama_completions(
    name: str, request: pytest.FixtureRequest, oracle: Oracle
) -> None:
    bundled = data.model_path()
    shared = request.getfixturevalue("shared") if name != bundled.stem else None
    model = bundled if shared is None else shared / "models" / f"{name}.gguf"
    text = write(model, [Prompt("Once upon a time")], Sampling(temperature=0), max_tokens=60)[0, 0].text
    assert len(text) > 60
    options = ["-p", "Once upon a time", "-n", 60, "--temp", 0, "-no-cnv", "--no-display-prompt", "-t", 2]
    oracle.prints(re.escape(text.rstrip()), "llama-completion", "-m", model, *options)


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize(
    "question",
    ["What is the capital of France?", "Write a short poem about rain.", "Explain how a bicycle works."],
)
def test_greedy_answers_are_llama_completions(question: str, oracle: Oracle) -> None:
    """Both write the conversation by the model's chat template; llama-completion's is in C++."""
    model = ROOT / "models" / "smollm2-135m-instruct-f16.gguf"
    if not model.is_file():
        pytest.skip(f"no {model}; `make smollm2` gets it")
    asked = [
        "generate",
        model,
        "--chat",
        "-p",
        question,
        "--temperature",
        0,
        "--max-tokens",
        60,
        "--threads",
        2,
    ]
    answer = run(*asked, "--json")
    text = json.loads(answer.stdout)["text"]
    assert len(text) > 20
    options = [
        "-p",
        question,
        "-n",
        60,
        "--temp",
        0,
        "-cnv",
        "-st",
        "--jinja",
        "--no-display-prompt",
        "-t",
        2,
    ]
    oracle.prints(re.escape(text.rstrip()), "llama-completion", "-m", model, *options)


@pytest.mark.parametrize("stops", [(), (")", " ")], ids=["equally long", "ending early"])
@pytest.mark.parametrize("n_parallel", [2, 3, 16])
def test_a_completion_does_not_depend_on_what_is_generated_beside_it(
    n_parallel: int, stops: tuple[str, ...]
) -> None:
    sampling = Sampling(temperature=1, top_k=0, top_p=1, min_p=0, seed=5)
    room = {"max_tokens": 12, "n_ctx": 64, "stops": stops}
    together = write(data.model_path(), PROMPTS, sampling, n_samples=5, n_parallel=7, **room)
    assert sorted(together) == [(prompt, number) for prompt in range(2) for number in range(5)]
    again = write(data.model_path(), PROMPTS, sampling, n_samples=5, n_parallel=n_parallel, **room)
    fewer = write(data.model_path(), PROMPTS[:1], sampling, n_samples=3, n_parallel=n_parallel, **room)
    for key, sample in (*again.items(), *fewer.items()):
        assert (sample.tokens, sample.log_p) == (together[key].tokens, together[key].log_p)
    assert len({tuple(sample.tokens) for sample in together.values()}) > 8


def test_completions_that_are_there_are_not_generated_again() -> None:
    sampling = Sampling(temperature=1, top_k=0, top_p=1, min_p=0, seed=5)
    with Model(data.model_path()) as model:
        plan = make_plan(model, PROMPTS, n_samples=3, max_tokens=6, n_parallel=4)
        every = {(s.prompt, s.number): s.tokens for s in generate(model, plan, sampling)}
        done = {(0, 0), (1, 1)}
        rest = {(s.prompt, s.number): s.tokens for s in generate(model, plan, sampling, done=done)}
    assert rest == {key: tokens for key, tokens in every.items() if key not in done}


def test_what_prompts_share_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The completions are as good as the same: only the last bits of logits differ."""
    sampling = Sampling(temperature=0)
    prompts = [Prompt("def main(argument, one"), Prompt("def main(argument, two")]
    extended: list[int] = []
    extend = Session.extend

    def count(session: Session, sequence: int, tokens: np.ndarray) -> np.ndarray:
        extended.append(len(tokens))
        return extend(session, sequence, tokens)

    monkeypatch.setattr(Session, "extend", count)
    with Model(data.model_path()) as model:
        plan = make_plan(model, prompts, n_samples=2, max_tokens=8, n_parallel=2)
        apart = {(s.prompt, s.number): s for s in generate(model, plan, sampling)}
        lengths = [len(tokens) for tokens in plan.prompts]
        n_shared = min(lengths) - 1
        assert (plan.prompts[0][:n_shared] == plan.prompts[1][:n_shared]).all()
        shared = {
            (s.prompt, s.number): s for s in generate(model, replace(plan, n_shared=n_shared), sampling)
        }
    assert extended == [*lengths, n_shared, *(length - n_shared for length in lengths)]
    assert {key: sample.tokens for key, sample in shared.items()} == {
        key: sample.tokens for key, sample in apart.items()
    }
    for key, sample in shared.items():
        # F16: a row by itself and several are summed up by other kernels.
        assert sample.log_p == pytest.approx(apart[key].log_p, abs=1e-2)


def test_another_seed_generates_other_completions() -> None:
    texts = {
        write(data.model_path(), PROMPTS, Sampling(seed=seed), max_tokens=20)[0, 0].text for seed in range(4)
    }
    assert len(texts) == 4


@pytest.mark.parametrize(
    "sampling",
    [Sampling(temperature=0), Sampling(temperature=0.5, top_k=5, min_p=0.1, seed=1)],
    ids=["greedy", "drawn"],
)
@pytest.mark.parametrize("n_prompts", [1, 2], ids=["alone", "side by side"])
def test_log_probabilities_are_those_of_the_model(sampling: Sampling, n_prompts: int) -> None:
    """They are of all tokens at temperature 1, however tokens are drawn."""
    sample = write(data.model_path(), PROMPTS[:n_prompts], sampling, max_tokens=8)[n_prompts - 1, 0]
    assert len(sample.log_p) == len(sample.tokens) == 8
    with Model(data.model_path()) as model:
        text = np.append(PROMPTS[sample.prompt].tokens(model), sample.tokens).astype(np.int32)
        with model.context(n_ctx=len(text), threads=2) as context:
            (logits,) = context.decode(text[None], 0, np.ones(len(text), bool)).astype(float)
    log_p = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    expected = [log_p[i - 1, text[i]] for i in range(len(text) - 8, len(text))]
    # F16: a row by itself and several are summed up by other kernels.
    assert sample.log_p == pytest.approx(expected, abs=1e-2)
    assert sample.to_json()["log_p"] == pytest.approx(sum(sample.log_p))


def test_completions_end_where_there_is_no_room_for_more() -> None:
    sample = write(data.model_path(), PROMPTS[:1], Sampling(), max_tokens=500, n_ctx=20)[0, 0]
    assert sample.finish == CONTEXT
    with Model(data.model_path()) as model:
        n_prompt = len(PROMPTS[0].tokens(model))
    # The last token needs no room: it is not read any more.
    assert n_prompt + len(sample.tokens) == 21
    assert write(data.model_path(), PROMPTS[:1], Sampling(), max_tokens=3)[0, 0].finish == LENGTH


def test_a_prompt_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"long: .* tokens leave no room in a context of 16"):
        write(data.model_path(), [Prompt("word " * 40, name="long")], Sampling(), n_ctx=16)


@pytest.mark.parametrize("batch", [BATCH, 40])
def test_a_prompt_of_more_than_a_batch_is_read_as_its_parts_are(
    batch: int, generated: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model takes more tokens than it was trained with; a single wrong one is seen among few."""
    monkeypatch.setattr("pyquant.generation.sampling.session.BATCH", batch)
    with Model(generated(F32)) as model:
        tokens = np.random.default_rng(4).integers(3, model.n_vocab, batch + 52).astype(np.int32)
        with Session(model, 2, len(tokens), threads=2) as session:
            at_once = session.extend(0, tokens)
            for part in np.array_split(tokens, 7):
                in_parts = session.extend(1, part)
            assert session.lengths.tolist() == [len(tokens)] * 2
    # Keys and values are F16, and parts of another length are summed up by other kernels: 5e-3 was measured.
    # A token that is left out makes 3e-2 of 2,100, and 0.3 of 92.
    np.testing.assert_allclose(at_once, in_parts, atol=2e-2)
