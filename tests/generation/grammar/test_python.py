"""The grammar of Python's simple statements and Python's own parser agree."""

from __future__ import annotations

import ast
import warnings
from functools import lru_cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.grammars import corpus, refusal
from tests.support.sentences import Sentences

SAMPLES = {
    "NAME": ["a", "b", "é", "_1"],
    "NUMBER": ["1", "0x1F", "1.5", ".5e-3", "2j", "1_0"],
    "STRING": ["'s'", '""', 'r"\\d"', "'''a'b'''", "f'{a.b!r}'", "u'\\x41'"],
    "BYTES": ["b'b'", 'Rb"\\d"'],
    "NEWLINE": ["\n", "# c\n\n  # d\n"],
}
SIMPLE = (
    *(ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Delete, ast.Raise, ast.Assert),
    *(ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Pass, ast.Break, ast.Continue),
)


def parse(text: str) -> list[ast.stmt] | None:
    """Return the statements that Python reads in a text; None where it cannot read it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what a later version will refuse
        try:
            return ast.parse(text).body
        except SyntaxError:
            return None


@lru_cache
def sentences() -> Sentences:
    return Sentences("python", SAMPLES)


def test_the_corpus_is_python() -> None:
    for text in corpus("python", "accept"):
        assert parse(text), text


def test_what_is_refused_is_no_python_but_for_blocks() -> None:
    texts = [text for text in corpus("python", "refuse") if parse(text) is not None]
    assert texts == ["[a,\nb]", "while a: b", "def f(): pass"]


@pytest.mark.ci
@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), n_choices=st.integers(5, 60))
def test_python_reads_what_the_grammar_makes(seed: int, n_choices: int) -> None:
    text = " ".join(sentences().draw(Random(seed), n_choices)).replace("\n ", "\n")
    assert not refusal("python", text), text
    assert parse(text), text


def is_in_the_grammar(statement: ast.stmt) -> bool:
    """Return whether the grammar has to take a statement: a simple one of Python 3.10.

    It annotates parts of names alone; indices with stars are new in Python 3.11.
    """
    target = statement.target if isinstance(statement, ast.AnnAssign) else None
    while isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
    indices = [node.slice for node in ast.walk(statement) if isinstance(node, ast.Subscript)]
    items = [item for index in indices if isinstance(index, ast.Tuple) for item in index.elts]
    stars = any(isinstance(item, ast.Starred) for item in items)
    return isinstance(statement, SIMPLE) and isinstance(target, ast.Name | None) and not stars


@pytest.mark.ci
@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), n_choices=st.integers(5, 40), data=st.data())
def test_python_reads_what_is_left_when_words_are_changed(
    seed: int, n_choices: int, data: st.DataObject
) -> None:
    words = sentences().draw(Random(seed), n_choices)
    place = data.draw(st.integers(0, len(words) - 1))
    others = data.draw(st.lists(st.sampled_from(sentences().words), max_size=2))
    text = " ".join([*words[:place], *others, *words[place + 1 :]]).replace("\n ", "\n")
    statements = parse(text)
    assert refusal("python", text) or statements is not None, text
    if statements and "\n" not in text and all(map(is_in_the_grammar, statements)):
        assert not refusal("python", text), text


@pytest.mark.ci
def test_lines_of_the_standard_library_are_taken() -> None:
    n_taken, refused = 0, []
    for name in ("argparse", "ast", "fractions", "imaplib", "statistics", "tarfile"):
        path = Path(ast.__file__).parent / f"{name}.py"
        if not path.exists():
            pytest.skip(f"skipped: no source of the standard library's {name}")
        source = path.read_bytes()
        lines = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, SIMPLE) or node.lineno != node.end_lineno:
                continue
            text = lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()
            formatted = any(isinstance(part, ast.JoinedStr) for part in ast.walk(node))
            if formatted or not refusal("python", text):
                n_taken += 1
            else:
                refused.append(text)
    assert refused == []
    assert n_taken > 2000
