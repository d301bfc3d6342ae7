"""Code and prose of Python's library, document by document."""

from __future__ import annotations

import ast
from itertools import islice

import pytest

from pyquant.data import excerpts
from pyquant.data.stdlib import documents


def test_code_is_of_modules() -> None:
    texts = list(islice(excerpts.code(), 20))
    assert len(set(texts)) == 20
    for text in texts:
        ast.parse(text)


@pytest.mark.ci
def test_prose_is_what_modules_say_of_themselves() -> None:
    all_texts = {document.text for document in documents(held_out=True)}
    code, prose = set(excerpts.code(held_out=True)), list(excerpts.prose(held_out=True))
    assert code <= all_texts
    assert not code & set(prose)
    lines = [line for text in prose for line in text.splitlines()]
    assert sum("def " in line for line in lines) < 0.02 * len(lines)


@pytest.mark.ci
def test_what_is_held_out_is_apart() -> None:
    assert not set(excerpts.code(held_out=True)) & set(excerpts.code())
