"""Grammars followed byte by byte: whether they accept a text, and where they refuse one; and their masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.generation.grammar.engine import State, allowed_tokens
from pyquant.generation.grammar.grammar import GRAMMARS, read_grammar
from pyquant.generation.grammar.lr.bytewise import bytewise

CORPORA = Path(__file__).parents[1] / "generation" / "grammar" / "corpora"


def refusal(name: str, text: str) -> str:
    """Return the end of what a grammar bundled takes of a text and what follows; empty: it accepts it."""
    state = bytewise(read_grammar(GRAMMARS / f"{name}.lark")).start()
    data = text.encode()
    for place, byte in enumerate(data):
        if not state.advance(byte):
            return f"{data[max(0, place - 60) : place]!r} does not go on with {data[place : place + 30]!r}"
    return "" if state.may_end else f"{data[-60:]!r} is no end"


def mask_of(state: State | _core.GrammarState, n_tokens: int) -> NDArray[np.bool_]:
    """Return whether each token may come next. All bits are set before: one that is not written shows."""
    words = np.full(-(-n_tokens // 32), -1, np.int32)
    state.mask(words)
    return allowed_tokens(words, n_tokens)


def corpus(name: str, answer: str) -> list[str]:
    """Return the texts that a grammar bundled has to `accept` or to `refuse`."""
    return (CORPORA / f"{name}.{answer}.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n%%\n")
