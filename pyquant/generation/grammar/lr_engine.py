"""Engine `lr`: grammars in Lark's language, LALR(1) or declared as ambiguous: masks in microseconds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import GrammarError
from pyquant.generation.grammar.bounds import check_bounds
from pyquant.generation.grammar.engine import Compiled, State
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


class LrGrammar(Compiled):
    """A grammar ready for a vocabulary; `grammar` is the kernel's."""

    def __init__(self, grammar: _core.Grammar) -> None:
        self.grammar = grammar
        self.n_words = grammar.n_words

    def start(self) -> LrState:
        return LrState(self.grammar.start())


class LrState(State):
    """A place in a grammar; `kernel` is the state itself, whose copies cost nothing."""

    def __init__(self, state: _core.GrammarState) -> None:
        self.kernel = state

    def mask(self, words: NDArray[np.int32]) -> None:
        self.kernel.mask(words)

    def allows(self, token: int) -> bool:
        return self.kernel.allows(token)

    def advance(self, token: int) -> None:
        if not self.kernel.advance(token):
            raise GrammarError(f"token {token} may not come here")

    def roll_back(self, n_tokens: int) -> None:
        if not self.kernel.roll_back(n_tokens):
            raise GrammarError(f"{n_tokens} tokens cannot be taken back: the text has fewer")

    def copy(self) -> LrState:
        return LrState(self.kernel.copy())

    @property
    def may_end(self) -> bool:
        return self.kernel.may_end

    @property
    def must_end(self) -> bool:
        return self.kernel.must_end
