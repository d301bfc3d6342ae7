"""The grammar of ANSI C in which any name may be one of a type: what it takes, and how long that takes."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from random import Random

import numpy as np
import pytest

from pyquant import _core
from pyquant.errors import GrammarError
from pyquant.generation.grammar.grammar import Grammar, Language, read_grammar
from pyquant.generation.grammar.lr.bytewise import bytewise
from pyquant.generation.grammar.lr.lark_tables import make_tables
from tests.support.c_texts import EXAMPLES, HEADERS, OPTIONS, preprocess
from tests.support.grammars import corpus, refusal

OWN = "typedef struct s Own; Own *f(Own *a) { Own b, *c = (Own *)a; return a * sizeof(Own); } Own/**/ g; //"


def compiled(grammar: Grammar, pieces: list[bytes]) -> _core.Grammar:
    """Compile a grammar for a vocabulary; its first token ends a text."""
    tables = make_tables(grammar)
    return _core.Grammar(**tables.arrays(), start=tables.start, pieces=[b"", *pieces], end_tokens=[0])


def mask(state: _core.GrammarState) -> int:
    words = np.empty(1, np.int32)
    state.mask(words)
    return int(words[0])


def test_headers_of_the_standard_library_are_taken() -> None:
    text = preprocess("-", "".join(f"#include <{name}.h>\n" for name in HEADERS.split()))
    assert "fopen" in text
    assert not refusal("ansi_c", text)


@pytest.mark.parametrize("name", ["example", "fitblk", "gun", "gzjoin", "gzlog", "minigzip", "zpipe", "zran"])
def test_ansi_c_takes_the_examples_of_zlib_without_knowing_names(name: str) -> None:
    file = EXAMPLES / f"{name}.c"
    if not file.exists():
        pytest.skip(f"skipped: no {file}")
    text = preprocess(str(file))
    assert refusal("c", text)
    assert not refusal("ansi_c", text)
    place = text.rindex(";")
    assert refusal("ansi_c", f"{text[:place]} {text[place + 1 :]}")


@pytest.mark.slow
def test_ansi_c_takes_the_headers_that_are_of_the_standard_by_a_compiler() -> None:
    compiler, n_taken = shutil.which("cc"), 0
    if compiler is None:
        pytest.skip("skipped: no C compiler preprocesses here")
    check = [compiler, "-x", "c", "-std=c90", "-pedantic-errors", "-fsyntax-only"]
    for file in sorted(Path("/usr/include").glob("*.h")):
        source = f'#include "{file}"\n'
        done = subprocess.run(
            [compiler, "-E", "-P", *OPTIONS, "-"], input=source, capture_output=True, text=True, check=False
        )
        command = [*check, "-Dva_list=__builtin_va_list", "-"]
        checked = subprocess.run(command, input=done.stdout, capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() and checked.returncode == 0:
            assert not refusal("ansi_c", done.stdout), file
            n_taken += 1
    if n_taken == 0:
        pytest.skip("skipped: no headers")


NAMES_OF_TYPES_DECIDE = {"int f(a, int b) { }", "int x = size_t;", "int f() { size_t = 1; }"}


def test_ansi_c_accepts_what_c_accepts() -> None:
    for text in [
        *corpus("c", "accept"),
        OWN,
        "a b; c d(e, f); typedef g; g h(i); j(k) int k; { return k; }",
    ]:
        assert not refusal("ansi_c", text), text


def test_ansi_c_refuses_what_c_refuses_whatever_names_are() -> None:
    refused = {*corpus("c", "refuse")} - NAMES_OF_TYPES_DECIDE
    assert len(refused) == len(corpus("c", "refuse")) - len(NAMES_OF_TYPES_DECIDE)
    wrong = ["a b c;", "int a b;", "f() { (int) = 1; }", "f() { x; int y + 1; }", "f() { a * b; 1; c d; }"]
    for text in [*refused, *wrong]:
        assert refusal("ansi_c", text), text


@pytest.mark.parametrize(
    "text",
    [
        "f(){a*b;}",
        "f(){a(b);}",
        "f(){(a)(b);}",
        "f(){(a)+b;(a)*b;(a)&b;}",
        "f(){x=(a)(b)(c)d;}",
        "f(){*(a)&b=c;}",
    ]
    + [
        "f(){x=sizeof(a)+1;}",
        "f(){x=(a(b))c;}",
        "f(a,b){}",
        "int f(a,b);",
        "f(a);a b(c d);",
        "a(b);",
        "a(*b)(c);",
    ],
)
def test_ansi_c_reads_names_either_way(text: str) -> None:
    assert not refusal("ansi_c", text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "repeated",
    ["a*b;", "(a)", "a(b);", "a(b);{", "if(a(b)){a*b;", "x=(((", "a(b,c(", "case(a)+b:", "(a[b])-c*("]
    + ["(a[b])", "(a(b))", "(a[b])-", "x;(a[b])(a[b])-a;", "(a)+", "(a)+(b)-(c)*(d)&", "(a)*(b[c]("],
)
def test_the_time_and_memory_of_ambiguous_statements_grow_with_their_number_and_no_faster(
    repeated: str,
) -> None:
    assert_each_takes_as_long("ansi_c", "f(){x;", repeated)


@pytest.mark.ci
@pytest.mark.parametrize("name", ["c", "ansi_c"])
@pytest.mark.parametrize(
    ("begin", "repeated"),
    [("f(){x", "=a"), ("f(){x=a", "?b:c"), ("f(){if(a)b;", "else if(c)d;"), ("f(){switch(a)", "case 1:")],
)
def test_what_ends_many_at_once_takes_as_long_as_what_ends_one(name: str, begin: str, repeated: str) -> None:
    """At `;` or `}` each mask asks what all that is open becomes."""
    assert_each_takes_as_long(name, begin, repeated)


def assert_each_takes_as_long(name: str, begin: str, repeated: str) -> None:
    words = [begin.encode(), repeated.encode(), b";", b"}", b"+", b"x;"]
    grammar = compiled(read_grammar(Path(name)), words)

    def seconds(n: int) -> float:
        state, since = grammar.start(), time.process_time()
        assert state.advance(1)
        for _ in range(n):
            assert state.advance(2)
            mask(state)
        return time.process_time() - since

    part, whole = seconds(2**9), seconds(2**13)
    assert whole < 60 * part + 0.1  # 16 where it is linear, 256 where it is squared


# The same language, in the plainest words.
PLAIN = """\
%declare AMBIGUOUS
%import c (start, struct, enum, one_type, any_name, NAME, SPACE)
%override one_type: struct | enum | NAME
%override any_name: NAME
%ignore SPACE
"""


def test_casts_that_are_read_from_the_right_are_given_up_with_a_reason() -> None:
    """Whether each is a cast or a call is open until the last one, and all are on the stack."""
    state = bytewise(Grammar(Language.LARK, PLAIN, "plain.lark")).start()
    begin = time.process_time()
    with pytest.raises(GrammarError, match="in more ways at once than engine lr follows"):
        all(state.advance(byte) for byte in b"f(){x=" + b"(a[b])" * 5000)
    assert time.process_time() - begin < 5
    state.roll_back(300)
    assert not state.must_end


WORDS = [*"()a+*=,;~[]1.&{", "++", "int", "sizeof", "const"]


@pytest.mark.parametrize("n_walks", [300, pytest.param(20000, marks=pytest.mark.slow)])
def test_it_is_what_c_is_with_names_as_types(n_walks: int) -> None:
    pieces = [f"{word} ".encode() for word in WORDS]
    grammars = [Grammar(Language.LARK, PLAIN, "plain.lark"), read_grammar(Path("ansi_c"))]
    plain, ours = (compiled(grammar, [*pieces, b"f(){"]) for grammar in grammars)
    random = Random(0)
    weights = [8, 8, 6] + [1] * (len(WORDS) - 3)
    for _ in range(n_walks):
        states, way = [plain.start(), ours.start()], [len(pieces) + 1]
        while way and len(way) <= 40:
            assert all(state.advance(way[-1]) for state in states)
            first, second = map(mask, states)
            assert first == second, way
            following = [token for token in range(1, len(pieces) + 1) if first >> token & 1]
            way += random.choices(following, [weights[token - 1] for token in following])
