"""Masks of the grammars bundled for the vocabularies of other models, along texts."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pyquant.generation.grammar.engines import make_engine
from pyquant.generation.grammar.grammar import read_grammar
from pyquant.generation.grammar.lr.lark_tables import make_tables
from pyquant.llama.vocabulary import Vocabulary
from tests.generation.twins.grammar_masks import Place
from tests.support.c_texts import with_names_as_types
from tests.support.grammars import corpus, mask_of
from tests.support.vocabularies import vocabulary


def tokens_of(vocabulary: Vocabulary, text: str) -> list[int]:
    """Cut a text into tokens; some vocabularies put a blank before it."""
    tokens = vocabulary.tokenize(text.encode(), ends=False).tolist()
    assert b"".join(map(vocabulary.piece, tokens)).strip() == text.strip().encode()
    return tokens


def follow(vocabulary: Vocabulary, name: str) -> None:
    """Check that each token of the corpus is allowed where it comes, and that texts may end."""
    compiled = make_engine("lr", vocabulary).compile(read_grammar(Path(name)))
    for text in corpus(name, "accept"):
        state = compiled.start()
        for token in tokens_of(vocabulary, text):
            assert mask_of(state, vocabulary.n_tokens)[token], (text, vocabulary.piece(token))
            assert state.allows(token)
            state.advance(token)
        assert state.may_end
        assert mask_of(state, vocabulary.n_tokens)[vocabulary.end_tokens()].all()


@pytest.mark.ci
@pytest.mark.parametrize("name", ["c", "python"])
def test_each_token_of_the_corpus_is_allowed(name: str) -> None:
    with vocabulary("llama-bpe") as loaded:
        follow(loaded, name)


@pytest.mark.slow
@pytest.mark.parametrize("other", ["llama-bpe", "qwen2", "gemma-4"])
@pytest.mark.parametrize("name", ["c", "markdown_sql", "python", "sql"])
def test_each_token_of_the_corpus_is_allowed_by_each_family(name: str, other: str) -> None:
    with vocabulary(other) as loaded:
        follow(loaded, name)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "step"), [("ansi_c", 7), ("c", 7), ("python", 7), ("sql", 43)])
def test_llguidance_allows_what_lr_allows(name: str, step: int) -> None:
    """The twin refuses what llguidance allows besides, which reads `return &&x` as `return & &x`."""
    grammar = read_grammar(Path(name))
    text = with_names_as_types() if name == "ansi_c" else grammar.text
    without_priorities = re.sub(r"(?m)^([A-Z_]+)\.-?\d+:", r"\1:", text)
    start = Place.start(make_tables(grammar))
    n_places = n_same = 0
    with vocabulary("llama-bpe") as loaded:
        ends = loaded.end_tokens().tolist()
        ours = make_engine("lr", loaded).compile(grammar)
        theirs = make_engine("llguidance", loaded).compile(replace(grammar, text=without_priorities))
        for text in corpus(name.removeprefix("ansi_"), "accept"):
            states = [compiled.start() for compiled in (ours, theirs)]
            before = b""
            # Tokens are counted from the text's length, so that masks are not all of the beginnings of texts.
            for i, token in enumerate(tokens_of(loaded, text), len(text)):
                if i % step == 0:
                    mine, other = (mask_of(state, loaded.n_tokens) for state in states)
                    assert not (mine & ~other).any(), (text, i)
                    place = start.after(before)
                    assert place
                    for more in np.flatnonzero(other & ~mine).tolist():
                        goes_on = place.may_end if more in ends else place.after(loaded.piece(more))
                        assert not goes_on, (before, loaded.piece(more))
                    n_places, n_same = n_places + 1, n_same + bool((mine == other).all())
                for state in states:
                    state.advance(token)
                before += loaded.piece(token)
    assert n_places > 20
    assert n_same > n_places / 4
