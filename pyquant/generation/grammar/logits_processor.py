"""Grammars for programs that use llama-cpp-python themselves, with whichever library it brings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import GrammarError
from pyquant.generation.grammar.engine import State, allowed_tokens
from pyquant.generation.grammar.engines import compile_for
from pyquant.generation.grammar.grammar import Grammar, Language, read_grammar
from pyquant.llama.vocabulary import Vocabulary


class GrammarProcessor:
    """Lets a llama_cpp.Llama write only what a grammar allows: one of its `logits_processor`.

    It follows a text as it grows by a token at a time. Whatever else it is called with is the prompt of a
    new text, so it can be used for one text after the other, but not for two that grow in turns.

    Parameters
    ----------
    llama : llama_cpp.Llama
        The model that writes. It has to live as long as this.
    grammar
        A file, by its suffix in Lark's language, GBNF or a JSON schema; the name of a grammar bundled,
        such as `json`; or a Grammar.
    engine
        What follows the grammar: lr, llguidance or gbnf; None: the one for its language, lr for Lark.

    Raises
    ------
    GrammarError
        The grammar cannot be read, or the engine does not take it.
    ConfigError
        There is no such engine.
    """

    def __init__(self, llama: Any, grammar: str | Path | Grammar, *, engine: str | None = None) -> None:
        # It is there, as `llama` is made by it; its functions are those of the library that loaded the model.
        functions = sys.modules["llama_cpp.llama_cpp"]
        vocabulary = Vocabulary(functions, llama.model, Path(llama.model_path))
        given = grammar if isinstance(grammar, Grammar) else read_grammar(Path(grammar))
        engine = engine or ("lr" if given.language is Language.LARK else None)
        self._compiled = compile_for(vocabulary, given, engine)
        self._n_tokens, self._name = vocabulary.n_tokens, given.name
        self._words = np.empty(self._compiled.n_words, np.int32)
        self._text: NDArray[np.intc] = np.empty(0, np.intc)
        self._state: State | None = None

    def __call__(self, input_ids: NDArray[np.intc], scores: NDArray[np.single]) -> NDArray[np.single]:
        """Take away the tokens that may not come.

        Parameters
        ----------
        input_ids : (n,) intc
            The prompt, and the tokens that were written so far.
        scores : (n_vocab,) float32
            The model's logits; in the copy that is returned, minus infinity where a token may not come.

        Raises
        ------
        GrammarError
            A token came that was not allowed, or none is left.
        """
        n = len(self._text)
        if self._state is None or len(input_ids) != n + 1 or (input_ids[:n] != self._text).any():
            self._state = self._compiled.start()
        else:
            self._state.advance(int(input_ids[-1]))
        self._text = np.array(input_ids, np.intc)
        self._state.mask(self._words)
        allowed = allowed_tokens(self._words, self._n_tokens)
        if not allowed.any():
            raise GrammarError(f"{self._name}: no token of the vocabulary can go on from here")
        return np.where(allowed, scores, np.single(-np.inf))
