"""Ambiguous grammars in engine lr take what an Earley parser takes; those without an end are refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lark import Lark
from lark.exceptions import UnexpectedInput

from pyquant import _core
from pyquant.errors import GrammarError
from pyquant.generation.grammar.grammar import Grammar, Language
from pyquant.generation.grammar.lr.lark_tables import Tables, make_tables

LETTERS = "abc"
END = len(LETTERS)
TEXTS = ["".join(text) for n in range(6) for text in itertools.product(LETTERS, repeat=n)]


def ambiguous(rules: str) -> Tables:
    return make_tables(Grammar(Language.LARK, f"%declare AMBIGUOUS\n{rules}", "g.lark"))


def compiled(tables: Tables, pieces: list[bytes]) -> _core.Grammar:
    pieces = [*pieces, b""]
    return _core.Grammar(**tables.arrays(), start=tables.start, pieces=pieces, end_tokens=[len(pieces) - 1])


def taken(grammar: _core.Grammar) -> set[str]:
    """Follow masks to all texts of five letters at most that may end."""
    texts, todo = set(), [("", grammar.start())]
    for text, state in todo:
        words = np.empty(1, np.int32)
        state.mask(words)
        if words[0] >> END & 1:
            texts.add(text)
        for token, letter in enumerate(LETTERS):
            if len(text) < 5 and words[0] >> token & 1:
                after = state.copy()
                assert after.advance(token)
                todo.append((text + letter, after))
    return texts


def taken_by_earley(rules: str) -> set[str]:
    parser = Lark(rules, parser="earley", lexer="basic", ambiguity="resolve")
    texts = set()
    for text in TEXTS:
        try:
            parser.parse(text)
        except UnexpectedInput:
            continue
        texts.add(text)
    return texts


@st.composite
def rules_of_letters(draw: st.DrawFn) -> str:
    names = ["start", "x", "y", "z"]
    symbols = st.lists(st.sampled_from([*names, '"a"', '"b"', '"c"']), min_size=0, max_size=3).map(" ".join)
    alternatives = st.lists(symbols, min_size=1, max_size=4, unique=True)
    return "\n".join(f"{name}: " + " | ".join(draw(alternatives)) for name in names)


@pytest.mark.ci
@settings(max_examples=60, deadline=None)
@given(rules_of_letters())
def test_texts_are_those_of_an_earley_parser(rules: str) -> None:
    try:
        tables = ambiguous(rules)
    except GrammarError:
        assume(False)
    assert taken(compiled(tables, [letter.encode() for letter in LETTERS])) == taken_by_earley(rules)


@pytest.mark.parametrize(
    "rules",
    [
        'start: start "a" start | "b"',
        'start: start start | "a" | "b"',
        'start: "a" start start | "b" |',
        'start: x y\nx: "a" x |\ny: "a" y "b" | "a" y | "b"',
        'start: "a" start "a" | "b" start "b" | "a" | "b" |',
    ],
)
def test_grammars_known_for_their_ways(rules: str) -> None:
    tables = ambiguous(rules)
    assert len(tables.more)
    assert taken(compiled(tables, [letter.encode() for letter in LETTERS])) == taken_by_earley(rules)


def test_a_text_that_can_be_read_in_more_ways_each_time_does_not_take_twice_as_long_each_time() -> None:
    state = compiled(ambiguous('start: start "a" start | "b"'), [b"b", b"a"]).start()
    for _ in range(200):
        assert state.advance(0)
        assert state.advance(1)
    assert state.advance(0)
    assert state.may_end


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ('start: start | "a"', "rule start may be nothing but itself"),
        ('start: x | "a"\nx: e start\ne: "b" |', "rule (start|x) may be nothing but itself"),
        ('start: e start "b" | "a"\ne: "c" |', "rule start may begin with itself after rules that are empty"),
        ('start: x "b" | "a"\nx: e start "c"\ne:', "rule x may begin with itself after rules that are empty"),
        ('start: start start | "a" |', "rule start may be nothing but itself"),
    ],
)
def test_grammars_that_a_parser_would_follow_without_end_are_refused(rules: str, message: str) -> None:
    with pytest.raises(GrammarError, match=rf"^g\.lark: {message}"):
        ambiguous(rules)


def test_a_grammar_without_conflicts_may_say_so_as_well() -> None:
    tables = ambiguous('start: "a" start | "b"')
    assert tables.more.shape == (0, 3)
