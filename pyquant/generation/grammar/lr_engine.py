"""Engine `lr`: grammars in Lark's language, LALR(1) or declared as ambiguous: masks in microseconds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import GrammarError
from pyquant.generation.grammar.bounds import check_bounds
from pyquant.generation.grammar.engine import allowed_tokens
from pyquant.generation.grammar.grammar import Grammar, Language
from pyquant.generation.grammar.lr.cache import CachedGrammar, hash_vocabulary
from pyquant.generation.grammar.lr.lark_tables import make_tables
from pyquant.llama.vocabulary import Vocabulary

START, CLASSES = "start", "classes"  # names in a file, beside those of the tables


class Lr:
    """The engine for one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ends = vocabulary.end_tokens().tolist()
        self._pieces = list(vocabulary.pieces())
        for token in self._ends:  # they end a text, and are no part of it
            self._pieces[token] = b""
        self._hash = hash_vocabulary(self._pieces, self._ends)

    def compile(self, grammar: Grammar) -> LrGrammar:
        """Compile a grammar, or take what was kept of it. Raises GrammarError: see `make_tables`."""
        if grammar.language is not Language.LARK:
            raise GrammarError(f"{grammar.name}: engine lr takes Lark alone, not {grammar.language.value}")
        check_bounds(grammar)
        cached = CachedGrammar(grammar, self._hash)
        if arrays := cached.read():
            start = int(arrays.pop(START))
            classes = [arrays.pop(name) for name in sorted(arrays) if name.startswith(CLASSES)]
            return self._compiled(arrays, start, classes)
        tables = make_tables(grammar)
        compiled = self._compiled(tables.arrays(), tables.start, None)
        found = {f"{CLASSES}{i}": array for i, array in enumerate(compiled.grammar.classes)}
        cached.write({**tables.arrays(), START: np.array(tables.start), **found}, tables.imports)
        return compiled

    def _compiled(
        self, tables: Mapping[str, NDArray[np.int32]], start: int, classes: list[NDArray[np.uint8]] | None
    ) -> LrGrammar:
        grammar = _core.Grammar(
            **tables, start=start, pieces=self._pieces, end_tokens=self._ends, classes=classes
        )
        return LrGrammar(grammar)


class LrGrammar:
    """A grammar ready for a vocabulary.

    Attributes
    ----------
    grammar
        The kernel's.
    n_words : int
        Words of a mask.
    """

    def __init__(self, grammar: _core.Grammar) -> None:
        self.grammar = grammar
        self.n_words: int = grammar.n_words

    def start(self) -> LrState:
        """Return the state before the first token."""
        return LrState(self.grammar.start(), self.n_words)


class LrState:
    """A place in a grammar; see `pyquant.generation.grammar.engine.State`. Copies cost nothing.

    Attributes
    ----------
    kernel
        The state itself.
    """

    def __init__(self, state: _core.GrammarState, n_words: int) -> None:
        self.kernel, self._n_words = state, n_words

    def mask(self, words: NDArray[np.int32]) -> None:
        """Write which tokens may come next. Python's lock is free meanwhile."""
        self.kernel.mask(words)

    def allows(self, token: int) -> bool:
        """Return whether a token may come next."""
        return self.kernel.allows(token)

    def advance(self, token: int) -> None:
        """Take a token."""
        if not self.kernel.advance(token):
            raise GrammarError(f"token {token} may not come here")

    def roll_back(self, n_tokens: int) -> None:
        """Take the last tokens back."""
        if not self.kernel.roll_back(n_tokens):
            raise GrammarError(f"{n_tokens} tokens cannot be taken back: the text has fewer")

    def copy(self) -> LrState:
        """Return a state of its own at the same place."""
        return LrState(self.kernel.copy(), self._n_words)

    def forced(self) -> list[int]:
        """Return the tokens that have to come now: each is the only one of the vocabulary that may."""
        state, tokens = self.copy(), []
        while not state.may_end:
            allowed = state._allowed()
            if len(allowed) != 1:
                break
            tokens.append(int(allowed[0]))
            state.advance(tokens[-1])
        return tokens

    def forced_bytes(self) -> bytes:
        """Return the bytes with which every text goes on from here."""
        return self.kernel.forced()

    @property
    def may_end(self) -> bool:
        """Say whether the text may end here."""
        return self.kernel.may_end

    @property
    def must_end(self) -> bool:
        """Say whether nothing else can come."""
        return self.kernel.must_end

    def _allowed(self) -> NDArray[np.int64]:
        words = np.empty(self._n_words, np.int32)
        self.mask(words)
        return np.flatnonzero(allowed_tokens(words, 32 * self._n_words))
