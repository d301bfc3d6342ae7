"""Tokens drawn and taken in a grammar by one call of the kernel: the same as by masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyquant import _core, data
from pyquant.generation.grammar.engines import make_engine
from pyquant.generation.grammar.grammar import GRAMMARS, read_grammar
from pyquant.generation.grammar.lr.lark_tables import make_tables
from pyquant.generation.sampling.generate import generate, make_plan
from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.result import Sample
from pyquant.generation.sampling.sampling import Sampling, uniform
from pyquant.llama.model import Model

ALL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
SETTINGS = [
    ALL,
    {**ALL, "temperature": 0.7},
    {**ALL, "temperature": 0.0, "top_k": 5},
    {**ALL, "top_k": 40, "top_p": 0.95},
    {"temperature": 0.8, "top_k": 3, "top_p": 0.9, "min_p": 0.05},
    {**ALL, "top_k": 2000},
    {"temperature": 2.0, "top_k": 40, "top_p": 0.8, "min_p": 0.0},
    {"temperature": 1.0, "top_k": 40, "top_p": 1.0, "min_p": 0.05},
    {"temperature": 0.3, "top_k": 20, "top_p": 1.0, "min_p": 0.0},
    {"temperature": 1e-9, "top_k": 40, "top_p": 0.95, "min_p": 0.0},
]


@given(st.tuples(*[st.integers(0, 2**64 - 1)] * 4))
def test_random_numbers_are_those_of_numpy(numbers: tuple[int, int, int, int]) -> None:
    seed, sample, position, attempt = numbers
    counter = np.array([position, attempt, 0, 0], np.uint64)
    philox = np.random.Philox(key=np.array([seed, sample], np.uint64), counter=counter)
    if position < 2**64 - 1 or attempt < 2**64 - 1:
        assert uniform(*numbers) == np.random.Generator(philox).random()


def vocabulary(random: np.random.Generator, name: str, n: int) -> list[bytes]:
    """Single bytes, pieces of texts of a grammar, some twice, an empty one, and one that ends a text."""
    text = (Path(GRAMMARS).parents[3] / "benchmarks/texts" / name).read_bytes()
    begins = random.integers(0, len(text) - 8, n)
    sizes = random.integers(1, 7, n)
    pieces = [text[begin : begin + size] for begin, size in zip(begins, sizes)]
    return [*(bytes([byte]) for byte in range(256)), *pieces, b"", b""]


@pytest.mark.ci
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize(
    ("grammar", "text"), [("json", "figures.json"), ("c", "words.c"), ("ansi_c", "words.c")]
)
def test_tokens_are_those_that_masks_give(grammar: str, text: str, settings: dict) -> None:
    random = np.random.default_rng(0)
    pieces = vocabulary(random, text, 2500)
    n = len(pieces)
    tables = make_tables(read_grammar(GRAMMARS / f"{grammar}.lark"))
    compiled = _core.Grammar(**tables.arrays(), start=tables.start, pieces=pieces, end_tokens=[n - 1])
    words = np.empty((1, compiled.n_words), np.int32)
    truncates = settings["top_k"] > 0 and settings["temperature"] > 0
    n_refused = n_taken = 0
    kept, masked = compiled.start(), compiled.start()
    for _ in range(120):
        masked.mask(words[0])
        bits = np.unpackbits(words[0].view(np.uint8), bitorder="little")[:n].astype(bool)
        logits = random.normal(0, random.choice([0.1, 3, 10]), (1, n)).astype(np.float32)
        logits[0, bits] += np.float32(random.choice([0, 0, 4, -6, -100]))
        for place in random.integers(0, 2**63, (4 if truncates else 0, 1, 3)).astype(np.uint64):
            number = np.array([uniform(*place[0].tolist(), 0)])
            drawn = _core.draw(logits, words, number, n_threads=1, **settings)
            again = _core.draw_kept(logits, [kept.copy()], place, **settings)
            assert (again[0][0], again[1][0]) == (drawn[0][0], drawn[1][0])
        places = random.integers(0, 2**63, (1, 3)).astype(np.uint64)
        first, second = (np.array([uniform(*places[0].tolist(), attempt)]) for attempt in (0, 1))
        drawn = _core.draw(logits, words if truncates else None, first, n_threads=1, **settings)
        if not truncates and not masked.allows(int(drawn[0][0])):
            n_refused += 1
            rows = np.zeros(1, np.int64)
            drawn = _core.draw_again(logits, rows, drawn[3], words, second, **settings)
        got = _core.draw_kept(logits, [kept], places, **settings)
        token = int(drawn[0][0])
        assert (got[0][0], got[1][0]) == (token, drawn[1][0])
        np.testing.assert_array_equal(got[3], drawn[3])
        if token < 0:
            break
        assert masked.advance(token)
        assert got[4] == [masked.must_end]
        n_taken += 1
        if token == n - 1:
            kept, masked = compiled.start(), compiled.start()
    assert n_taken == 120
    assert truncates or n_refused > 5


def test_what_a_state_is_not_of_is_refused() -> None:
    tables = make_tables(read_grammar(GRAMMARS / "json.lark"))
    pieces = [*(bytes([byte]) for byte in range(256)), b""]
    state = _core.Grammar(**tables.arrays(), start=tables.start, pieces=pieces, end_tokens=[256]).start()
    logits, places = np.zeros((1, 257), np.float32), np.zeros((1, 3), np.uint64)
    with pytest.raises(ValueError, match="number of states"):
        _core.draw_kept(logits, [state, state], places, **ALL)
    with pytest.raises(ValueError, match="vocabulary of as many"):
        _core.draw_kept(logits[:, :256].copy(), [state], places, **ALL)
    with pytest.raises(ValueError, match="n_rows, 3"):
        _core.draw_kept(logits, [state], places[:, :2].copy(), **ALL)
    with pytest.raises(ValueError, match="top_k"):
        _core.draw_kept(logits, [state], places, **{**ALL, "top_p": 0.5})
    logits[0, 3] = np.nan
    assert np.isnan(_core.draw_kept(logits, [state], places, **ALL)[1][0])


@pytest.mark.parametrize("settings", [*SETTINGS[:4], {**ALL, "top_p": 0.9}])
def test_measuring_masks_changes_no_completion(settings: dict) -> None:
    def texts(measure: bool) -> list[Sample]:
        with Model(data.model_path()) as model:
            compiled = make_engine("lr", model.vocabulary).compile(read_grammar(Path("json")))
            plan = make_plan(model, [Prompt("x = ")], n_samples=5, max_tokens=24, n_parallel=4)
            samples = generate(model, plan, Sampling(**settings), grammar=compiled, measure_mask=measure)
            return sorted(samples, key=lambda sample: sample.number)

    plain, measured = texts(False), texts(True)
    assert [(s.tokens, s.log_p, s.finish) for s in plain] == [(s.tokens, s.log_p, s.finish) for s in measured]
    assert any(sample.tokens for sample in plain)
