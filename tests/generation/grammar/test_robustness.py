"""Engine lr and grammars or vocabularies that nobody wishes for: refused soon and with a reason, or exact."""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyquant import _core
from pyquant.errors import GrammarError
from pyquant.generation.grammar.grammar import Grammar, Language, read_grammar
from pyquant.generation.grammar.lr.lark_tables import GRAMMARS, make_tables
from pyquant.generation.grammar.lr_engine import Lr
from pyquant.llama.vocabulary import Vocabulary
from tests.generation.twins.grammar_masks import Place, allowed
from tests.support.grammars import mask_of

END = 0  # the first token of these vocabularies


def compile_for(text: str, pieces: list[bytes]) -> _core.Grammar:
    tables = make_tables(Grammar(Language.LARK, text, "g.lark"))
    return _core.Grammar(**tables.arrays(), start=tables.start, pieces=pieces, end_tokens=[END])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (r"start: A" "\n" r"A: /[^\x00-\U0010ffff]/", "terminal A never comes: it matches nothing"),
        ('start: A "b"\nA: /(.|\\n)+/', "after A may come B, but longest match would read on"),
        ('start: A\nA: "a\0b"', "line 2: a NUL byte"),
        ("start: A+\nA: /(.|\\n)+/", "after A may come A, but longest match would read on"),
        ('start: "a" | A\nA: /a/', "terminal A never comes: .* others match all its texts first"),
        ("start: A\nA: /(a|b)*a(a|b){20}/", "terminals are too large: the lexer would have to remember"),
        ("start: " + " ".join(f'["a{i}"]' for i in range(30)), "rule start: .* more than 10,000 alternat"),
        ('start: ("a" | "b")~40', "rule start: .* more than 10,000 alternatives"),
        ('start: t{"a"}\nt{x}: "b" t{t{x}} | x', "template t: an argument is a template itself"),
        (f'start: {"(" * 900}"a"{")" * 900}', "nested too deeply"),
        (
            "start: A0\n" + "".join(f"A{i}: A{i + 1} A{i + 1}\n" for i in range(30)) + 'A30: "a"',
            "terminal A0: with the terminals that it names it has more than 30,000 letters",
        ),
        ("start: A\nA: B\nB: A", "Recursion in terminal"),
        ("%import .nowhere.A\nstart: A", "nowhere"),
        ("%import common.NOWHERE\nstart: NOWHERE", "NOWHERE"),
    ],
)
def test_refusals_come_soon(text: str, message: str) -> None:
    begin = time.process_time()
    with pytest.raises(GrammarError, match=f"(?s)^g\\.lark: .*{message}"):
        make_tables(Grammar(Language.LARK, text, "g.lark"))
    assert time.process_time() - begin < 5


@pytest.mark.ci
def test_a_long_terminal_is_read_soon() -> None:
    begin = time.process_time()
    make_tables(Grammar(Language.LARK, f'start: "{"ab" * 2000}" | "c"', "g.lark"))
    assert time.process_time() - begin < 10


def test_a_terminal_may_match_everything() -> None:
    pieces = [b"", b"a", b"\n", "é".encode(), "é".encode()[:1], b"\xff"]
    state = compile_for("start: A\nA: /(.|\\n)+/", pieces).start()
    assert mask_of(state, 6).tolist() == [False, True, True, True, True, False]
    assert state.advance(4)
    assert mask_of(state, 6).tolist() == [False] * 6  # what a character is cut into cannot begin again


@pytest.mark.ci
@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_imports_in_a_circle(names: list[str], tmp_path: Path) -> None:
    for name, following in zip(names, names[1:] + names[:1]):
        text = f"%import .{following}.X -> Y\nstart: X\nX: Y"
        (tmp_path / f"{name}.lark").write_text(text)
    begin = time.process_time()
    with pytest.raises(GrammarError, match=r"a\.lark: .*(imports itself|used but not defined)"):
        make_tables(read_grammar(tmp_path / "a.lark"))
    assert time.process_time() - begin < 20


def test_equal_and_empty_tokens() -> None:
    pieces = [b"", b"(", b"", b"(", b"1", b"1", b"1)", b"", b"1)", b")("]
    tables = make_tables(Grammar(Language.LARK, 'start: "(" start ")" | "1"', "g.lark"))
    state, place = compile_for('start: "(" start ")" | "1"', pieces).start(), Place.start(tables)
    for token in (1, 3, 6):
        np.testing.assert_array_equal(mask_of(state, len(pieces)), allowed(place, pieces, [END]))
        after = place.after(pieces[token])
        assert state.advance(token)
        assert after is not None
        place = after
    assert not state.allows(2)
    assert mask_of(compile_for('start: "1"', [b""]).start(), 1).tolist() == [False]


def test_special_tokens_are_never_part_of_a_text(vocabulary: Vocabulary) -> None:
    """A grammar may spell one; then ordinary tokens spell it."""
    special = [token for token, piece in enumerate(vocabulary.pieces()) if not piece]
    spelled = {vocabulary.piece(token, special=True) for token in special} - {b""}
    assert spelled
    for text in spelled:
        grammar = Grammar(Language.LARK, f'start: "{text.decode()}"', "g.lark")
        compiled = Lr(vocabulary).compile(grammar)
        state = compiled.start()
        for token in vocabulary.tokenize(text, ends=False).tolist():
            assert not mask_of(state.kernel, vocabulary.n_tokens)[special].any()
            state.advance(token)
        assert state.must_end
        ends = mask_of(state.kernel, vocabulary.n_tokens)
        np.testing.assert_array_equal(np.flatnonzero(ends), vocabulary.end_tokens())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["arithmetic", "c", "ansi_c", "json"])
def test_time_and_memory_grow_with_the_depth_and_no_faster(name: str) -> None:
    """Nest a megabyte of parentheses, and a part of it."""
    text = (GRAMMARS / f"{name}.lark").read_text("utf-8")
    begin, middle, pieces = {
        "arithmetic": (b"", b"1", [b"((((((((", b"))))))))"]),
        "c": (b"int a = ", b"1", [b"((((((((", b"))))))))"]),
        "ansi_c": (b"f(){a(", b"b", [b"((((((((", b"))))))))"]),
        "json": (b"", b"1", [b"[[[[[[[[", b"]]]]]]]]"]),
    }[name]
    compiled = compile_for(text, [b"", *pieces, middle, begin])

    def nest(n: int) -> tuple[float, int]:
        state = compiled.start()
        assert not begin or state.advance(4)
        before, since = resident(), time.process_time()
        assert all(state.advance(1) for _ in range(n))
        top = mask_of(state, 5)
        assert state.advance(3)
        grown = resident() - before
        assert all(state.advance(2) for _ in range(n))
        assert not top[END]
        assert not state.allows(2)
        return time.process_time() - since, grown

    nest(1000)
    part, whole = nest(2**12), nest(2**17)
    assert whole[0] < 100 * part[0] + 0.1  # 32 where it is linear, 1024 where it is squared
    assert whole[1] < 300 * 2**20  # a byte has a state of the parser, and 8 bytes a place


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


MUTATED = [(GRAMMARS / f"{name}.lark").read_text("utf-8") for name in ("arithmetic", "json")]
PARTS = ["*", "+", "?", "~2..3", "|", "(", ")", "[", "]", '"a"', "/b+/", "/", '"', "\\", "start", "A", "{x}"]
PARTS += ["\n", ":", "->", "%ignore ", "%import common.INT\n", "%declare X\n", "é", "\0", "~99999", ".2"]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A grammar bundled from which pieces were cut, doubled, moved, or replaced by other things."""
    text = draw(st.sampled_from(MUTATED))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(text)))
        end = begin + draw(st.integers(0, 12))
        change: Callable[[str], str] = draw(
            st.sampled_from([lambda _: "", lambda cut: cut + cut, lambda cut: cut[::-1]])
            | st.sampled_from(PARTS).map(lambda part: lambda _: part)
        )
        text = text[:begin] + change(text[begin:end]) + text[end:]
    return text


@settings(max_examples=60)
@given(mutated())
def test_mutated_grammars_are_taken_or_refused(text: str) -> None:
    begin = time.process_time()
    with contextlib.suppress(GrammarError):
        make_tables(Grammar(Language.LARK, text, "g.lark"))
    assert time.process_time() - begin < 10


@pytest.mark.slow
@settings(max_examples=1500)
@given(mutated())
def test_many_mutated_grammars(text: str) -> None:
    with contextlib.suppress(GrammarError):
        compiled = compile_for(text, [b"", b"1", b"(", b'"a', b" "])
        mask_of(compiled.start(), 5)
