"""Follow a grammar byte by byte; terminals end by longest match, as in engine `lr`, not as in lark."""

from __future__ import annotations

from functools import lru_cache

from pyquant import _core
from pyquant.generation.grammar.grammar import Grammar
from pyquant.generation.grammar.lr.lark_tables import make_tables

END = 256  # the token that ends a text, after those of single bytes


@lru_cache
def bytewise(grammar: Grammar) -> _core.Grammar:
    """Compile a grammar in Lark's language for the vocabulary of single bytes. Raises GrammarError."""
    tables = make_tables(grammar)
    pieces = [*(bytes([byte]) for byte in range(256)), b""]
    return _core.Grammar(**tables.arrays(), start=tables.start, pieces=pieces, end_tokens=[END], classes=None)


def takes(grammar: Grammar, text: str) -> bool:
    """Return whether a text is a whole one of a grammar. Raises GrammarError."""
    state = bytewise(grammar).start()
    return all(state.advance(byte) for byte in text.encode()) and state.may_end
