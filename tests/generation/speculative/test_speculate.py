"""Completions with a draft are the target's: greedy token for token, sampled as often as it has them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pyquant import data
from pyquant.generation.grammar.engines import make_engine
from pyquant.generation.grammar.grammar import Grammar, Language
from pyquant.generation.sampling.generate import OnToken, generate, make_plan
from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.result import CONTEXT, END, LENGTH, Sample
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.decoding.flips import find_flips
from pyquant.generation.speculative.decoding.model_draft import ModelDraft
from pyquant.generation.speculative.decoding.pair import NGRAM, open_draft
from pyquant.generation.speculative.decoding.result import DraftedCompletion
from pyquant.generation.speculative.decoding.speculate import Speculation
from pyquant.generation.speculative.policies import make_policy
from pyquant.generation.speculative.policies.policy import Decision, Policy, Round
from pyquant.llama.model import Model
from tests.support.models import Model as Generated

PROMPTS = [Prompt("def main(", name="code"), Prompt("The module", name="prose")]
GREEDY = Sampling(temperature=0)
LIST = {
    "llguidance": Grammar(Language.REGEX, r"\[([0-9]+, ){6,12}[0-9]+\]"),
    "gbnf": Grammar(Language.GBNF, 'root ::= "[" ([0-9]+ ", ")+ [0-9]+ "]"', "list"),
    "lr": Grammar(Language.LARK, 'start: "[" (NUMBER ", ")+ "]"\nNUMBER: /[0-9]+/', "list"),
}


@pytest.fixture(scope="module")
def q4_0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model in 4 bits."""
    from pyquant.rounding.quantize_model import quantize_model
    from pyquant.schemes.settings import make_mode

    path = tmp_path_factory.mktemp("draft") / "q4_0.gguf"
    quantize_model(data.model_path(), path, make_mode({"mode": "q4_0"}))
    return path


def speculate(
    target: Path,
    draft: Path | str | None,
    policy: Policy | str,
    sampling: Sampling = GREEDY,
    prompts: list[Prompt] = PROMPTS,
    *,
    grammar: Grammar | None = None,
    engine: str = "llguidance",
    on_token: OnToken | None = None,
    **room: int,
) -> list[DraftedCompletion]:
    with Model(target) as model:
        plan = make_plan(model, prompts, n_parallel=1, **room)
        compiled = make_engine(engine, model.vocabulary).compile(grammar) if grammar else None
        policy = make_policy(policy) if isinstance(policy, str) else policy
        with (
            Session(model, 1, plan.n_ctx, n_views=1, threads=1) as session,
            open_draft(draft or NGRAM, session, sampling, threads=1) as its_draft,
        ):
            writer = Speculation(session, its_draft if draft else None, sampling, policy, grammar=compiled)
            return list(writer.completions(plan, on_token))


def alone(
    target: Path,
    sampling: Sampling,
    *,
    grammar: Grammar | None = None,
    engine: str = "llguidance",
    **room: int,
) -> list[Sample]:
    with Model(target) as model:
        plan = make_plan(model, PROMPTS, n_parallel=1, **room)
        compiled = make_engine(engine, model.vocabulary).compile(grammar) if grammar else None
        return list(generate(model, plan, sampling, grammar=compiled, threads=1))


def same(texts: list[DraftedCompletion], samples: list[Sample]) -> None:
    assert [text.sample.tokens for text in texts] == [sample.tokens for sample in samples]
    assert [text.sample.data for text in texts] == [sample.data for sample in samples]
    assert [text.sample.finish for text in texts] == [sample.finish for sample in samples]
    for text, sample in zip(texts, samples):
        assert text.sample.log_p == pytest.approx(sample.log_p, abs=0.05)  # F16: several rows, other kernels


@pytest.mark.parametrize("draft", ["model", NGRAM, None])
@pytest.mark.parametrize("policy", ["fixed:k=1", "fixed:k=7", "static:threshold=1,keep=0", "plus_minus"])
def test_greedy_completion_is_the_targets_own(draft: str | None, policy: str, q4_0: Path) -> None:
    texts = speculate(data.model_path(), q4_0 if draft == "model" else draft, policy, max_tokens=40)
    same(texts, alone(data.model_path(), GREEDY, max_tokens=40))
    assert all(text.n_tokens == 1 + len(text.rounds) + text.n_accepted for text in texts)
    if draft == "model":
        assert all(text.n_accepted > 0 for text in texts)
        assert any(text.n_accepted < text.n_drafted for text in texts) or "keep=0" in policy
    if draft is None:
        assert all({its[:3] for its in text.rounds} == {(0, 0, 0)} for text in texts)


def test_a_draft_like_its_target_is_accepted() -> None:
    (text, _) = speculate(data.model_path(), data.model_path(), "fixed:k=4", max_tokens=41)
    assert [its[:3] for its in text.rounds] == [(4, 4, 4)] * 8
    assert text.tokens_per_round == 5
    assert text.acceptance == 1


def test_completions_have_their_room() -> None:
    for n in (1, 2, 5):
        texts = speculate(data.model_path(), data.model_path(), "fixed:k=8", max_tokens=n)
        assert all(len(text.sample.tokens) == n and text.sample.finish == LENGTH for text in texts)
    with Model(data.model_path()) as model:
        n_prompt = len(PROMPTS[0].tokens(model))
    (text,) = speculate(
        data.model_path(), data.model_path(), "fixed:k=8", GREEDY, PROMPTS[:1], max_tokens=500, n_ctx=20
    )
    assert text.sample.finish == CONTEXT
    assert n_prompt + len(text.sample.tokens) == 21


def test_a_draft_with_less_room_drafts_nothing_beyond(q4_0: Path) -> None:
    with Model(data.model_path()) as model:
        plan = make_plan(model, PROMPTS[:1], max_tokens=40, n_parallel=1)
        room = len(plan.prompts[0]) + 15
        with (
            Model(q4_0) as its_model,
            Session(its_model, 1, room, threads=1) as of_draft,
            Session(model, 1, plan.n_ctx, threads=1) as session,
        ):
            writer = Speculation(session, ModelDraft(of_draft, GREEDY), GREEDY, make_policy("fixed:k=3"))
            (text,) = writer.completions(plan)
    same([text], alone(data.model_path(), GREEDY, max_tokens=40)[:1])
    assert text.rounds[0].drafted == 3
    assert {its.drafted for its in text.rounds[-20:]} == {0}


def test_pieces_come_as_they_are_written() -> None:
    heard: list[bytes] = []
    texts = speculate(
        data.model_path(), NGRAM, "fixed", on_token=lambda _sample, piece: heard.append(piece), max_tokens=30
    )
    assert b"".join(heard) == b"".join(text.sample.data for text in texts)


@pytest.mark.parametrize("engine", ["llguidance", "lr", "gbnf"])
@pytest.mark.parametrize("draft", ["model", NGRAM])
def test_a_draft_keeps_to_the_grammar(draft: str, engine: str, q4_0: Path) -> None:
    drafted: list[int] = []

    def policy(known: Round) -> Decision:
        drafted.append(len(known.drafted))
        return Decision.MORE if len(known.drafted) < 4 else Decision.STOP

    its_draft = q4_0 if draft == "model" else draft
    texts = speculate(
        data.model_path(), its_draft, policy, grammar=LIST[engine], engine=engine, max_tokens=40
    )
    same(texts, alone(data.model_path(), GREEDY, grammar=LIST[engine], engine=engine, max_tokens=40))
    assert max(drafted) == 4
    assert any(text.n_accepted for text in texts)
    sampling = Sampling(temperature=1, top_k=0, top_p=1, min_p=0, seed=3)
    texts = speculate(
        data.model_path(), its_draft, policy, sampling, grammar=LIST[engine], engine=engine, n_samples=6,
        max_tokens=40,
    )  # fmt: skip
    assert all(re.fullmatch(r"\[([0-9]+,? ?)+\]?", text.sample.text) for text in texts)
    ended = [text.sample.text for text in texts if text.sample.finish == END]
    assert all(text.endswith("]") for text in ended)
    assert len({text.sample.text for text in texts}) > 1


def test_completions_depend_on_seed_and_number_alone(q4_0: Path) -> None:
    sampling = Sampling(seed=5)
    several = speculate(data.model_path(), q4_0, "fixed:k=3", sampling, n_samples=3, max_tokens=12)
    assert len({tuple(text.sample.tokens) for text in several}) == 6
    (again,) = speculate(
        data.model_path(), q4_0, "fixed:k=3", sampling, PROMPTS[:1], n_samples=1, max_tokens=12
    )
    assert again.sample.tokens == several[0].sample.tokens


def test_a_flip_is_found_where_a_completion_is_another_one() -> None:
    (text, _) = speculate(data.model_path(), NGRAM, "fixed", max_tokens=12)
    tokens = list(text.sample.tokens)
    with Model(data.model_path()) as model, Session(model, 1, 64, threads=1) as session:
        prompt = PROMPTS[0].tokens(model)
        assert find_flips(session, prompt, tokens, ended=False) == []
        other = tokens[5] + 1
        flips = find_flips(session, prompt, [*tokens[:5], other, *tokens[6:]], ended=False)
    assert (flips[0].position, flips[0].written, flips[0].alone) == (5, other, tokens[5])
    assert flips[0].gap > 0


def from_what_is_drafted(known: Round) -> Decision:
    """Decide by how much was drafted before, and by drafted tokens themselves; drop what is unsure."""
    if known.drafted and known.drafted[-1].token_p < 0.3:
        return Decision.DROP
    most = 1 + (known.previous[-1][0] if known.previous else 2) % 3
    return Decision.MORE if len(known.drafted) < most else Decision.STOP


@pytest.mark.parametrize("draft", ["model", NGRAM])
@pytest.mark.parametrize("settings", [(1.0, 3, 1.0, 0.0), (0.7, 4, 0.9, 0.1)])
def test_sampled_completions_come_as_often_as_the_target_generates_them(
    draft: str, settings: tuple[float, int, float, float], small_pair: tuple[Path, Path]
) -> None:
    """All completions of four tokens, counted, whatever a policy decides by."""
    from scipy.stats import chisquare

    target, of_model = small_pair
    n, length = 1500, 3
    temperature, top_k, top_p, min_p = settings
    sampling = Sampling(temperature, top_k, top_p, min_p, seed=11)
    texts = speculate(
        target, of_model if draft == "model" else draft, from_what_is_drafted, sampling,
        [Prompt("the rain, the rain, the rain, the")], n_samples=n, max_tokens=length,
    )  # fmt: skip
    if draft == "model":
        assert 0 < sum(text.n_accepted for text in texts) < sum(text.n_drafted for text in texts)
    counts = Counter(tuple(text.sample.tokens) for text in texts)
    expected = probabilities(target, "the rain, the rain, the rain, the", sampling, length)
    assert set(counts) <= set(expected)
    often = [tokens for tokens, p in expected.items() if p * n >= 5]
    seldom = sum(p for p in expected.values() if p * n < 5)
    observed = [counts[tokens] for tokens in often]
    wanted = [expected[tokens] * n for tokens in often]
    if seldom * n >= 1:
        observed.append(n - sum(observed))
        wanted.append(n - sum(wanted))
    assert len(often) > 5
    assert chisquare(observed, wanted).pvalue > 1e-3


@pytest.fixture(scope="module")
def small_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two small models with one vocabulary that are of the same opinion now and then."""
    folder = tmp_path_factory.mktemp("pair")
    random = np.random.default_rng(0)
    sizes = {"n_embd": 32, "n_ff": 32, "n_layer": 1, "n_head": 2, "n_head_kv": 2, "n_vocab": 300}

    def louder(name: str, x: np.ndarray) -> np.ndarray:
        return 3 * x if name == "output.weight" else x

    def other(name: str, x: np.ndarray) -> np.ndarray:
        noise = 0.5 * random.standard_normal(x.shape) * x.std()
        return louder(name, (x + noise).astype(np.float32) if x.ndim > 1 else x)

    target = Generated(**sizes, change=louder).write(folder / "target.gguf")
    return target, Generated(**sizes, change=other).write(folder / "draft.gguf")


def probabilities(model: Path, prompt: str, sampling: Sampling, length: int) -> dict[tuple[int, ...], float]:
    """Give the probability of every completion of so many tokens that the model may generate alone."""
    n_numbers = 2000
    numbers = (np.arange(n_numbers) + 0.5) / n_numbers
    left: dict[tuple[int, ...], float] = {(): 1.0}
    with Model(model) as loaded, Session(loaded, 1, 64, threads=1) as session:
        tokens = Prompt(prompt).tokens(loaded)
        for _ in range(length):
            longer = {}
            for text, p in left.items():
                session.roll_back(0, 0)
                logits = session.extend(0, np.append(tokens, np.array(text, np.int32)).astype(np.int32))
                drawn = sampling.draw(np.tile(logits, (n_numbers, 1)), numbers).tokens
                for token, count in Counter(drawn.tolist()).items():
                    longer[(*text, token)] = p * count / n_numbers
            left = longer
    return left
