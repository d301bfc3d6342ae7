"""The grammar of SQL and SQLite agree about which texts are SQL."""

from __future__ import annotations

import ast
import re
import sqlite3
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.grammars import corpus, refusal
from tests.support.sentences import Sentences

pytestmark = pytest.mark.skipif(
    sqlite3.sqlite_version_info < (3, 39),
    reason=f"skipped: SQLite {sqlite3.sqlite_version} is no judge of the grammar of SQLite 3.39",
)
SAMPLES = {
    "NAME": ["a", "b", '"x y"', '""', "[q]", "`z`", "é$1"],
    "STRING": ["'s'", "''", "'it''s'"],
    "BLOB": ["x'0A'", "X''"],
    "INTEGER": ["1", "0x1F"],
    "FLOAT": ["1.5", ".5", "2.", "1e3", "1.E-3"],
    "PARAMETER": ["?", "?1", ":a", "@b", "$c"],
}


def is_sql(text: str) -> bool:
    """Return whether SQLite can read a text as one statement, whatever it thinks of it then."""
    explain = "" if re.match(r"(?i)\s*explain", text) else "EXPLAIN "
    try:
        sqlite3.connect(":memory:").execute(explain + text)
    except (sqlite3.Error, sqlite3.Warning) as error:
        return not re.search("syntax error|incomplete input|unrecognized token|one statement", str(error))
    return True


@lru_cache
def sentences() -> Sentences:
    return Sentences("sql", SAMPLES)


def test_the_corpus_is_sql() -> None:
    for text in corpus("sql", "accept"):
        assert is_sql(text), text


def test_what_is_refused_is_no_sql() -> None:
    for text in corpus("sql", "refuse"):
        assert not is_sql(text), text


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), n_choices=st.integers(5, 60))
def test_sqlite_reads_what_the_grammar_makes(seed: int, n_choices: int) -> None:
    text = " ".join(sentences().draw(Random(seed), n_choices)).strip("; ")
    assert not refusal("sql", text), text
    assert ";" in text or is_sql(text), text


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), n_choices=st.integers(5, 40), data=st.data())
def test_sqlite_reads_what_is_left_when_words_are_changed(
    seed: int, n_choices: int, data: st.DataObject
) -> None:
    words = sentences().draw(Random(seed), n_choices)
    place = data.draw(st.integers(0, len(words) - 1))
    others = data.draw(st.lists(st.sampled_from(sentences().words), max_size=2))
    text = " ".join([*words[:place], *others, *words[place + 1 :]]).strip("; ")
    assert ";" in text or refusal("sql", text) or is_sql(text), text


def test_statements_of_the_tests_of_python_are_taken() -> None:
    package = find_spec("test.test_sqlite3")
    if package is None or package.origin is None:
        pytest.skip("skipped: no tests of the module sqlite3 are installed")
    texts = {
        node.value
        for path in Path(package.origin).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isascii()
    }
    statements = [text for text in sorted(texts) if "\0" not in text and is_sql(text)]
    statements.remove("select 1; /*")  # SQLite ends the comment itself
    assert len(statements) > 200
    for text in statements:
        assert not refusal("sql", text), text
