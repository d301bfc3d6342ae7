"""The grammar of ANSI C takes what others wrote: the standard library's headers and Debian's examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyquant import _core, data
from pyquant.errors import GrammarError
from pyquant.generation.grammar.engines import make_engine
from pyquant.generation.grammar.grammar import Grammar, Language, read_grammar
from pyquant.generation.grammar.lr.lark_tables import make_tables
from pyquant.generation.grammar.lr_engine import LrGrammar
from pyquant.llama.model import Model
from tests.support.c_texts import EXAMPLES, HEADERS, preprocess, with_names_as_types
from tests.support.grammars import refusal

SPELLED = r".*_t|FILE|va_list|jmp_buf"
QUOTED_OR_NAME = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\w+")


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


@pytest.mark.ci
def test_names_of_types_can_be_given_by_a_list_or_by_their_spelling() -> None:
    assert refusal("c", WITH_OWN)
    assert taken(own_names('"Own" | "Other"'), WITH_OWN)
    assert taken(own_names("/[A-Z][A-Za-z]*/"), WITH_OWN)
    assert not taken(own_names('"Other"'), WITH_OWN)
    assert taken(own_names('"Own"'), "int Owner; size_t n = Owner;")


@pytest.mark.ci
@pytest.mark.parametrize("name", ["example", "fitblk", "gun", "gzjoin", "gzlog", "minigzip", "zpipe", "zran"])
def test_examples_of_zlib_are_taken_as_they_are_with_their_names(name: str) -> None:
    file = EXAMPLES / f"{name}.c"
    if not file.exists():
        pytest.skip(f"skipped: no {file}")
    text = preprocess(str(file))
    names = sorted(named_by_typedef(text))
    assert any(not re.fullmatch(SPELLED, each) for each in names)
    assert taken(own_names(" | ".join(f'"{each}"' for each in names)), text)


@pytest.mark.ci
def test_a_grammar_in_which_any_name_is_one_of_a_type_has_conflicts() -> None:
    """So names of types have to be known; llguidance, which tries all ways, is what the message offers."""
    grammar = Grammar(Language.LARK, with_names_as_types(), "c.lark")
    with pytest.raises(GrammarError, match=r"not LALR\(1\): after .*NAME.*llguidance"):
        make_tables(grammar)
    with Model(data.model_path()) as model:
        state = make_engine("llguidance", model.vocabulary).compile(grammar).start()
        for token in model.vocabulary.tokenize(WITH_OWN.encode(), ends=False).tolist():
            state.advance(token)
        assert state.may_end


@pytest.mark.ci
def test_it_has_all_productions() -> None:
    assert len(make_tables(read_grammar(Path("c"))).lengths) >= 211  # as the grammar in the standard
