"""The grammar of ANSI C takes what others wrote: the standard library's headers and Debian's examples."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pyquant.grammar.grammar import read_grammar
from pyquant.grammar.lr.lark_tables import make_tables
from tests.support.grammars import refusal

EXAMPLES = Path("/usr/share/doc/zlib1g-dev/examples")
HEADERS = "assert ctype errno float limits locale math setjmp signal stdarg stddef stdio stdlib string time"
OPTIONS = ["-std=c90", "-U__GNUC__", "-D__builtin_va_list=va_list", "-D_Float128=double"]
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
    names = {name for name in named_by_typedef(text) if not re.fullmatch(r".*_t|FILE|va_list|jmp_buf", name)}
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


def test_it_has_all_productions() -> None:
    assert len(make_tables(read_grammar(Path("c"))).lengths) >= 211  # as the grammar in the standard
