"""The grammars of ANSI C take what others wrote: the standard library's headers and Debian's examples."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from pyquant import _core, data
from pyquant.errors import GrammarError
from pyquant.grammar.engines import make_engine
from pyquant.grammar.grammar import Grammar, Language, read_grammar
from pyquant.grammar.lr.bytewise import bytewise
from pyquant.grammar.lr.lark_tables import make_tables
from pyquant.grammar.lr_engine import LrGrammar
from pyquant.llama.model import Model
from tests.support.grammars import corpus, refusal

EXAMPLES = Path("/usr/share/doc/zlib1g-dev/examples")
HEADERS = "assert ctype errno float limits locale math setjmp signal stdarg stddef stdio stdlib string time"
OPTIONS = ["-std=c90", "-U__GNUC__", "-D__builtin_va_list=va_list", "-D_Float128=double"]
SPELLED = r".*_t|FILE|va_list|jmp_buf"
QUOTED_OR_NAME = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\w+")


def preprocess(file: str, text: str = "") -> str:
    """Return a text without # lines, in the C of the standard alone; skip the test where that cannot be."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("skipped: no C compiler preprocesses here")
    done = subprocess.run(
        [compiler, "-E", "-P", *OPTIONS, file], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"skipped: {file} does not go through the preprocessor: {done.stderr[:200]}")
    return done.stdout


def named_by_typedef(text: str) -> set[str]:
    """Return the names that a text gives to types."""
    names = set()
    for begin in re.finditer(r"\btypedef\b", text):
        depth, end = 0, begin.end()
        while depth or text[end] != ";":
            depth += (text[end] in "{(") - (text[end] in "})")
            end += 1
        body = text[begin.end() : end]
        while "{" in body:
            body = re.sub(r"\{[^{}]*\}", " ", body)
        name = re.search(r"\(\s*\*\s*(\w+)\s*\)", body) or re.search(
            r"(\w+)\s*(?:\[[^]]*\]\s*|\([^()]*\)\s*)*$", body
        )
        assert name, body
        names.add(name[1])
    return names


def spelled_as_types(text: str) -> str:
    """Return a text in which names of types end in _t."""
    names = {name for name in named_by_typedef(text) if not re.fullmatch(SPELLED, name)}
    return QUOTED_OR_NAME.sub(lambda word: word[0] + "_t" * (word[0] in names), text)


def test_headers_of_the_standard_library_are_taken() -> None:
    text = preprocess("-", "".join(f"#include <{name}.h>\n" for name in HEADERS.split()))
    assert "fopen" in text
    assert not refusal("c", spelled_as_types(text))


@pytest.mark.parametrize("name", ["example", "fitblk", "gun", "gzjoin", "gzlog", "minigzip", "zpipe", "zran"])
def test_examples_of_zlib_are_taken(name: str) -> None:
    file = EXAMPLES / f"{name}.c"
    if not file.exists():
        pytest.skip(f"skipped: no {file}")
    text = spelled_as_types(preprocess(str(file)))
    assert not refusal("c", text)
    place = text.rindex(";")
    assert refusal("c", f"{text[:place]} {text[place + 1 :]}")


OWN_NAMES = """\
%import c (start, TYPE_NAME, SPACE, COMMENT, LINE_COMMENT)
%extend TYPE_NAME: {names}
%ignore SPACE
%ignore COMMENT
%ignore LINE_COMMENT
"""
WITH_OWN = (
    "typedef struct s Own; Own *f(Own *a) { Own b, *c = (Own *)a; return a * sizeof(Own); } Own/**/ g; //"
)


def own_names(names: str) -> LrGrammar:
    """Return the grammar of C with more names of types, for single bytes."""
    tables = make_tables(Grammar(Language.LARK, OWN_NAMES.format(names=names), "mine.lark"))
    pieces = [*(bytes([byte]) for byte in range(256)), b""]
    return LrGrammar(_core.Grammar(**tables.arrays(), start=tables.start, pieces=pieces, end_tokens=[256]))


def taken(grammar: LrGrammar, text: str) -> bool:
    state = grammar.start()
    return all(state.kernel.advance(byte) for byte in text.encode()) and state.may_end


def test_names_of_types_can_be_given_by_a_list_or_by_their_spelling() -> None:
    assert refusal("c", WITH_OWN)
    assert taken(own_names('"Own" | "Other"'), WITH_OWN)
    assert taken(own_names("/[A-Z][A-Za-z]*/"), WITH_OWN)
    assert not taken(own_names('"Other"'), WITH_OWN)
    assert taken(own_names('"Own"'), "int Owner; size_t n = Owner;")


@pytest.mark.parametrize("name", ["example", "fitblk", "gun", "gzjoin", "gzlog", "minigzip", "zpipe", "zran"])
def test_examples_of_zlib_are_taken_as_they_are_with_their_names(name: str) -> None:
    file = EXAMPLES / f"{name}.c"
    if not file.exists():
        pytest.skip(f"skipped: no {file}")
    text = preprocess(str(file))
    names = sorted(named_by_typedef(text))
    assert any(not re.fullmatch(SPELLED, each) for each in names)
    assert taken(own_names(" | ".join(f'"{each}"' for each in names)), text)


def test_a_grammar_in_which_any_name_is_one_of_a_type_has_conflicts() -> None:
    """So names of types have to be known; llguidance, which tries all ways, is what the message offers."""
    text = read_grammar(Path("c")).text
    text = text.replace(" | TYPE_NAME", " | NAME", 1).replace("any_name: NAME | TYPE_NAME", "any_name: NAME")
    text = re.sub(r"(?m)^TYPE_NAME.*\n", "", text)
    text = text.replace("direct_declarator: any_name", "direct_declarator: NAME")
    grammar = Grammar(Language.LARK, text, "c.lark")
    with pytest.raises(GrammarError, match=r"not LALR\(1\): after .*NAME.*llguidance"):
        make_tables(grammar)
    with Model(data.model_path()) as model:
        state = make_engine("llguidance", model.vocabulary).compile(grammar).start()
        for token in model.vocabulary.tokenize(WITH_OWN.encode(), ends=False).tolist():
            state.advance(token)
        assert state.may_end


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
        WITH_OWN,
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


@pytest.mark.parametrize(
    "repeated", ["a*b;", "a(b);", "a(b);{", "if(a(b)){a*b;", "x=(((", "a(b,c(", "case(a)+b:", "(a[b])-c*("]
)
def test_the_time_and_memory_of_ambiguous_statements_grow_with_their_number_and_no_faster(
    repeated: str,
) -> None:
    grammar = make_tables(read_grammar(Path("ansi_c")))
    pieces = [b"", b"f(){x;", repeated.encode()]
    compiled = _core.Grammar(**grammar.arrays(), start=grammar.start, pieces=pieces, end_tokens=[0])

    def seconds(n: int) -> float:
        state, since = compiled.start(), time.process_time()
        assert state.advance(1)
        for _ in range(n):
            assert state.advance(2)
            state.mask(np.empty(1, np.int32))
        return time.process_time() - since

    part, whole = seconds(2**9), seconds(2**13)
    assert whole < 60 * part + 0.1  # 16 where it is linear, 256 where it is squared


def test_casts_without_end_are_given_up_with_a_reason() -> None:
    """Whether each is a cast or a call is open until the last one."""
    state = bytewise(read_grammar(Path("ansi_c"))).start()
    begin = time.process_time()
    with pytest.raises(GrammarError, match="in more ways at once than engine lr follows"):
        all(state.advance(byte) for byte in b"f(){x=" + b"(a)" * 5000)
    assert time.process_time() - begin < 5
    state.roll_back(300)
    assert not state.must_end


def test_it_has_all_productions() -> None:
    assert len(make_tables(read_grammar(Path("c"))).lengths) >= 211  # as the grammar in the standard
