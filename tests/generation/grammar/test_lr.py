"""Engine lr: masks equal the twin's on any grammar, and every allowed token leads to an end."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import deque
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pyquant import _core
from pyquant.errors import GrammarError
from pyquant.generation.grammar.grammar import GRAMMARS, Grammar, Language, read_grammar
from pyquant.generation.grammar.lr.lark_tables import Tables, make_tables
from tests.generation.twins.grammar_masks import Place, allowed
from tests.support.grammars import mask_of

BYTES = [bytes([byte]) for byte in range(256)]
END = 0  # the first token of these vocabularies


def compile_for(tables: Tables, pieces: list[bytes]) -> _core.Grammar:
    return _core.Grammar(**tables.arrays(), start=tables.start, pieces=pieces, end_tokens=[END])


def tables_of(text: str) -> Tables:
    return make_tables(Grammar(Language.LARK, text, "g.lark"))


def accepts(tables: Tables, text: bytes) -> bool:
    place = Place.start(tables).after(text)
    return place is not None and place.may_end


def forced_by_the_twin(place: Place) -> bytes:
    """Try all bytes, as long as only one may come."""
    text = b""
    while not place.may_end:
        following = {byte: after for byte in BYTES if (after := place.after(byte)) is not None}
        if len(following) != 1:
            break
        ((byte, place),) = following.items()
        text += byte
    return text


TERMINALS = ['"a"', '"b"', '"ab"', '"cabé"', "/a+/", "/[ab]c*/", '"c"', "/b(a|c)?b/", "/é|è/", "/c[^c]*c/"]


@st.composite
def grammars(draw: st.DrawFn) -> str:
    """Small grammars: three rules of alternatives, over some terminals; an ignored one, perhaps.

    Half of them may be ambiguous.
    """
    names = ["start", "x", "y"]
    terminals = draw(st.lists(st.sampled_from(TERMINALS), min_size=1, max_size=4, unique=True))
    symbols = st.lists(st.sampled_from([*names[1:], *terminals]), min_size=0, max_size=3).map(" ".join)
    rules = [f"{name}: " + " | ".join(draw(st.lists(symbols, min_size=1, max_size=3))) for name in names]
    ignored = draw(st.sampled_from(["", "%ignore / +/", "%ignore / |#[^#]*#/"]))
    reserved = draw(st.sampled_from(["", "RESERVED.1: /ab?/", "RESERVED.-1: /a[ab]+c/"]))
    ambiguous = draw(st.sampled_from(["", "%declare AMBIGUOUS"]))
    return "\n".join([*rules, ignored, reserved, ambiguous])


@pytest.mark.ci
@settings(max_examples=40, deadline=None)
@given(
    grammar=grammars(),
    words=st.lists(st.text("abc é#", min_size=1, max_size=5), max_size=30),
    choices=st.lists(st.integers(0, 1000), min_size=4, max_size=4),
)
def test_masks_are_what_single_bytes_say(grammar: str, words: list[str], choices: list[int]) -> None:
    try:
        tables = tables_of(grammar)
    except GrammarError:
        assume(False)
    cut = [word.encode()[i:] for i, word in enumerate(words)]
    pieces = [b"", *(bytes([byte]) for byte in "abc é#".encode()), *cut, b""]
    state, place = compile_for(tables, pieces).start(), Place.start(tables)
    for choice in choices:
        mask = mask_of(state, len(pieces))
        np.testing.assert_array_equal(mask, allowed(place, pieces, [END]))
        assert mask.tolist() == [state.allows(token) for token in range(len(pieces))]
        assert state.may_end == place.may_end == mask[END]
        assert state.must_end == (mask[END] and mask.sum() == 1)
        assert state.forced() == forced_by_the_twin(place)
        going_on = np.flatnonzero(mask)[int(mask[END]) :]
        if len(going_on) == 0:
            break
        token = int(going_on[choice % len(going_on)])
        copy = state.copy()
        assert state.advance(token)
        assert state.roll_back(1)
        np.testing.assert_array_equal(mask_of(state, len(pieces)), mask)
        assert state.advance(token)
        np.testing.assert_array_equal(mask_of(copy, len(pieces)), mask)
        after = place.after(pieces[token])
        assert after is not None
        place = after


def leads_to_an_end(place: Place, letters: list[bytes], most: int = 20000) -> bool:
    """Search for the rest of a text, byte by byte; one that is not among `most` places may still exist."""
    seen, todo = {place}, deque([place])
    while todo and len(seen) < most:
        place = todo.popleft()
        if place.may_end:
            return True
        for letter in letters:
            after = place.after(letter)
            if after is not None and after not in seen:
                seen.add(after)
                todo.append(after)
    return bool(todo)


@settings(max_examples=25, deadline=None)
@given(grammar=grammars(), choices=st.lists(st.integers(0, 1000), min_size=3, max_size=3))
def test_every_allowed_byte_leads_to_an_end(grammar: str, choices: list[int]) -> None:
    try:
        tables = tables_of(grammar)
    except GrammarError:
        assume(False)
    letters = [bytes([byte]) for byte in "abc é#".encode()]
    place = Place.start(tables)
    assert leads_to_an_end(place, letters)
    for choice in choices:
        following = [after for after in map(place.after, letters) if after is not None]
        for after in following:
            assert leads_to_an_end(after, letters)
        if not following:
            break
        place = following[choice % len(following)]


def test_longest_match() -> None:
    tables = tables_of(
        'start: (NAME | "if" | "+" | "++" | STRING)+\nNAME: /[a-z]+/\nSTRING: /"[^"]*"/\n%ignore " "'
    )
    name, keyword = (tables.terminals.index(terminal) for terminal in ("NAME", "IF"))
    for text, terminal in {b"i": name, b"if": keyword, b"iffy": name}.items():
        place = Place.start(tables).after(text)
        assert place is not None
        assert tables.lexer.ends[place.lexer] == terminal
    assert accepts(tables, b"i+++if")
    assert not accepts(tables, b'"open')
    assert Place.start(tables).after(b'"open') is not None


def test_characters_may_be_cut() -> None:
    tables = tables_of("start: /[à-ü]+/")
    place = Place.start(tables).after("à".encode()[:1])
    assert place is not None
    assert not place.may_end
    assert [byte for byte in range(256) if place.after(bytes([byte]))] == list(range(0xA0, 0xBD))


def test_keywords_keep_to_priorities() -> None:
    strong = tables_of('start: NAME | "if"\nNAME: /[a-z]+/')
    with pytest.raises(GrammarError, match="terminal IF never comes"):
        tables_of('start: NAME | "if"\nNAME.2: /[a-z]+/')
    assert accepts(strong, b"if")


def test_reserved_texts_never_come() -> None:
    tables = tables_of("start: NAME+\nNAME: /[a-z]+/\nRESERVED.1: /if|else/\n%ignore / /")
    assert accepts(tables, b"iffy i els")
    assert not accepts(tables, b"iffy if")
    mask = mask_of(compile_for(tables, [b"", b"if", b"if ", b"x if", b"x ifs"]).start(), 5)
    assert mask.tolist() == [False, True, False, True, True]


def test_a_terminal_may_have_to_go_on_before_the_next() -> None:
    tables = tables_of("start: A (END A)*\nA: /[a-z]/\nEND: /(#[^\\n]*|\\n)+/")
    assert accepts(tables, b"a# b\nc\nd")
    assert not accepts(tables, b"a# b\n")


@pytest.mark.parametrize(
    "regex",
    [
        '"[^"]*?"[a-z]*', "x*?y+", "a??b{1,3}", "(a.*?b)+", "a.*?(b|cd)", ";?.*?;", '"(\\\\.|[^"])*?"',
        "-?.+?;", "-?..*?;", "a?[ax].+?b", "[uU]?.{1,}?'", "a?a+?", "a.*?b|ac", "a.*?b|c+",
    ],
)  # fmt: skip
def test_a_lazy_repetition_whose_end_re_takes_elsewhere_is_refused(regex: str) -> None:
    with pytest.raises(GrammarError, match="a lazy repetition ends a terminal as soon as it can"):
        tables_of(f"start: A\nA: /{regex}/")


@pytest.mark.parametrize(
    "regex",
    [
        "a.*?bc", "[uU]?'[^c]*?'", "a.*?b.*?c", "a+?", "(a(.|\\n)*?b)", "a.*?b|c", "a(?:bc|cb).*?c",
        "a.*?b{2}", "'(.|\\n)*?'|b(.|\\n)*?b", "c+a*?b",
    ],
)  # fmt: skip
def test_a_lazy_repetition_ends_where_re_ends_it(regex: str) -> None:
    tables = tables_of(f"start: A\nA: /{regex}/")
    for text in map("".join, product("abcu'\n", repeat=5)):
        found = re.match(regex, text)
        end = len(found[0]) if found else -1
        assert [n for n in range(len(text) + 1) if accepts(tables, text[:n].encode())] == [end] * (end >= 0)


def test_a_terminal_with_a_lazy_repetition_ends_as_soon_as_it_can() -> None:
    tables = tables_of('start: "a"\n%ignore /\\/\\*(.|\\n)*?\\*\\//')
    assert accepts(tables, b"/* * */a/**/")
    assert not accepts(tables, b"/**/ */a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'start: x | y\nx: "a"\ny: "a"',
            r"not LALR\(1\): after A, at \$END, one may end .*%declare AMBIGUOUS.*llguidance",
        ),
        ('start: "x" start start | "y" |', r"not LALR\(1\)"),
        ("start: A\nA: /a*/", "terminal A matches the empty text"),
        ("start: A A\nA: /a+/", "after A may come A, but longest match"),
        ("start: A\nA: /a(?=b)/", "terminal A: .*look-around cannot be matched"),
        ("start: A\nA: /(a)\\1/", "references to groups"),
        ("start: A\nA: /[/", "unterminated character set"),
        ('start: start "a"', "rule start matches no text"),
        ('x: "a"', "no rule start"),
        ("start: x", "x"),
        ("start: A\nA: B\nB: A", "Recursion in terminal"),
        ("%import nowhere.A\nstart: A", "nowhere"),
        ("start:", "no text but the empty one"),
        ("start: (", "line 1|end of input|EOF"),
        ("start: A\nA: /(a{1000}){1000}/", "too large"),
    ],
)
def test_grammars_that_cannot_be_used_say_why(text: str, message: str) -> None:
    with pytest.raises(GrammarError, match=f"(?s)g\\.lark: .*{message}"):
        tables_of(text)


@settings(max_examples=50, deadline=None)
@given(st.text('abAB:|"/()[]*+?~.%\n {}\\', max_size=40))
def test_the_reader_of_grammars_stops_at_nothing(text: str) -> None:
    with contextlib.suppress(GrammarError):
        tables_of("start: A\nA: " + text)


@pytest.mark.parametrize("name", ["arithmetic", "json"])
def test_grammars_in_the_box(name: str) -> None:
    tables = make_tables(read_grammar(GRAMMARS / f"{name}.lark"))
    corpus = json.loads((Path(__file__).parent / "corpora" / f"{name}.json").read_text())
    for text in corpus["accept"]:
        assert accepts(tables, text.encode()), text
    for text in corpus["refuse"]:
        assert not accepts(tables, text.encode()), text


def test_a_megabyte_of_parentheses() -> None:
    tables = make_tables(read_grammar(GRAMMARS / "arithmetic.lark"))
    pieces = [b"", b"((((((((", b"1", b"))))))))"]
    state = compile_for(tables, pieces).start()
    n = 2**20 // 8
    assert all(state.advance(1) for _ in range(n))
    assert state.advance(2)
    assert all(state.advance(3) for _ in range(n))
    assert state.may_end
    assert not state.allows(3)
    assert state.roll_back(2 * n + 1)
    assert not state.roll_back(1)
    assert mask_of(state, len(pieces)).tolist() == [False, True, True, False]


def test_bounded_repetitions_are_minimized_quickly() -> None:
    begin = time.perf_counter()
    tables = tables_of('start: A B\nA: /"[^"]{0,400}"/\nB: /a{0,2000}b/')
    assert time.perf_counter() - begin < 10
    assert accepts(tables, b'"' + 400 * b"x" + b'"' + 2000 * b"a" + b"b")
    assert not accepts(tables, b'"' + 401 * b"x" + b'"b')
