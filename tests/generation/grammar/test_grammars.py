"""Grammars bundled accept and refuse what they should."""

from __future__ import annotations

import pytest

from tests.support.grammars import corpus, refusal

NAMES = ["c", "markdown_sql", "python", "sql"]


@pytest.mark.ci
@pytest.mark.parametrize("name", NAMES)
def test_grammars_accept_their_corpus(name: str) -> None:
    for text in corpus(name, "accept"):
        assert not refusal(name, text), text


@pytest.mark.parametrize("name", NAMES)
def test_grammars_refuse_what_is_wrong(name: str) -> None:
    for text in corpus(name, "refuse"):
        assert refusal(name, text), text
