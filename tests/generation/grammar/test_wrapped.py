"""Blanks in a row of JSON are bounded, and a grammar begins behind a trigger."""

from __future__ import annotations

import string
from unittest.mock import Mock

import numpy as np
import pytest

from pyquant.errors import ConfigError, GrammarError
from pyquant.generation.grammar.bounded_blanks import MOST_BLANKS, BoundedBlanks, Row
from pyquant.generation.grammar.engine import State
from pyquant.generation.grammar.engines import compile_for
from pyquant.generation.grammar.grammar import Grammar, Language
from pyquant.llama.vocabulary import Vocabulary
from tests.support.grammars import mask_of

SCHEMA = Grammar(Language.JSON_SCHEMA, '{"type": "object", "properties": {"a": {}}, "required": ["a"]}', "g")


def write(state: State, vocabulary: Vocabulary, text: str) -> int:
    """Advance by a text's bytes as long as they may come; return how many did."""
    pieces = vocabulary.pieces()
    for n, byte in enumerate(text.encode()):
        token = pieces.index(bytes([byte]))
        if not state.allows(token):
            return n
        state.advance(token)
    return len(text.encode())


def test_blanks_in_a_row_end(vocabulary: Vocabulary) -> None:
    state = compile_for(vocabulary, SCHEMA).start()
    assert write(state, vocabulary, '{"a":' + " " * 1000) == 5 + MOST_BLANKS
    mask = mask_of(state, vocabulary.n_tokens)
    blank = [token for token, piece in enumerate(vocabulary.pieces()) if piece[:1] in (b" ", b"\n", b"\t")]
    assert not mask[blank].any()
    assert mask.tolist() == [state.allows(token) for token in range(vocabulary.n_tokens)]
    with pytest.raises(GrammarError, match="makes more than 64 blanks"):
        state.advance(vocabulary.pieces().index(b" "))
    copy = state.copy()
    state.roll_back(1)
    assert write(state, vocabulary, " 1}") == 3
    assert state.may_end
    assert not copy.may_end


def test_blanks_in_strings_are_free(vocabulary: Vocabulary) -> None:
    text = '{"a": "' + r"\"" + " " * 200 + '"}'
    state = compile_for(vocabulary, SCHEMA).start()
    assert write(state, vocabulary, text) == len(text)
    assert state.may_end


def test_rows_are_counted_outside_of_strings() -> None:
    assert Row().after(b'{ "a\\"  ').in_string
    assert Row().after(b'{"a\\\\"  ') == Row(2)
    assert Row(1).after(b" \n\t") == Row(4)
    assert Row(60).after(b" " * 200) == Row(MOST_BLANKS + 1)


def test_a_token_with_a_long_row_behind_something_else_is_no_dead_end() -> None:
    compiled = Mock(n_words=1)
    compiled.start.return_value.allows.return_value = True
    pieces = (b"{" + b" " * 70, b"1", b" ")
    state = BoundedBlanks(compiled, pieces).start()
    state.advance(0)
    words = np.full(1, -1, np.int32)
    state.mask(words)
    expected = [True, True, False]
    assert [state.allows(token) for token in range(3)] == expected
    assert np.unpackbits(words.view(np.uint8), bitorder="little")[:3].tolist() == expected


@pytest.mark.parametrize("engine", ["llguidance", "lr"])
def test_the_form_begins_behind_the_trigger(engine: str, vocabulary: Vocabulary) -> None:
    grammar = Grammar(Language.LARK, 'start: "yes" | "no"', "g")
    state = compile_for(vocabulary, grammar, engine, trigger="<answer>").start()
    assert state.may_end
    assert write(state, vocabulary, "yes, I think so: <<answer") == 25
    free = mask_of(state, vocabulary.n_tokens)
    assert free[vocabulary.end_tokens()].all()
    assert free.tolist() == [state.allows(token) for token in range(vocabulary.n_tokens)]
    for token, piece in enumerate(vocabulary.pieces()):
        if piece.startswith(b">") and len(piece) > 1:
            assert not free[token]
    assert write(state, vocabulary, ">") == 1
    assert not state.may_end
    assert write(state.copy(), vocabulary, "maybe") == 0
    assert write(state, vocabulary, "yes") == 3
    assert state.must_end
    state.roll_back(6)
    assert write(state, vocabulary, "rs> maybe") == 9
    assert state.may_end


def test_the_trigger_is_found_wherever_it_lies(vocabulary: Vocabulary) -> None:
    """Against the definition: a text at random, its first place of the trigger, and what ends it."""
    grammar = Grammar(Language.LARK, 'start: "z"', "g")
    rng = np.random.default_rng(1)
    compiled = compile_for(vocabulary, grammar, trigger="aab")
    for _ in range(40):
        state = compiled.start()
        text = "".join(rng.choice(list("aab"), 12))
        place = text.find("aab")
        n = write(state, vocabulary, text)
        assert n == (len(text) if place < 0 else place + 3)


def test_an_empty_trigger_is_refused(vocabulary: Vocabulary) -> None:
    with pytest.raises(ConfigError, match="trigger: is empty"):
        compile_for(vocabulary, Grammar(Language.REGEX, string.ascii_letters), trigger="")
