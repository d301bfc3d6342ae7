"""Engine `gbnf`: llama.cpp's own grammars, through its sampler."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import GrammarError
from pyquant.generation.grammar.bounds import QUOTED, check_bounds
from pyquant.generation.grammar.engine import Compiled, State
from pyquant.generation.grammar.gbnf_place import with_place
from pyquant.generation.grammar.grammar import Grammar, Language
from pyquant.llama.log import collect_errors, reason
from pyquant.llama.vocabulary import Vocabulary

# Literals, classes and comments, in which no token is named; and names of tokens.
_NAMED = re.compile(QUOTED + r"|(?P<token><\[\d+\]>|<[^>]+>)", re.DOTALL)


class Gbnf:
    """The engine for one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def compile(self, grammar: Grammar) -> GbnfGrammar:
        """Compile a grammar. Raises GrammarError, with llama.cpp's reason, and where it has a place."""
        if grammar.language is not Language.GBNF:
            raise GrammarError(f"{grammar.name}: engine gbnf takes GBNF alone, not {grammar.language.value}")
        check_bounds(grammar)
        if (nul := grammar.text.find("\0")) >= 0:  # C would read up to it
            raise GrammarError(f"{grammar.name}: line {grammar.text.count(chr(10), 0, nul) + 1}: a NUL byte")
        if not grammar.text.strip():  # llama.cpp would take it, and every text
            raise GrammarError(f"{grammar.name}: is empty; a grammar begins with the rule root")
        sampler, why = self._try(grammar.text)
        if sampler is None:
            why = with_place(grammar.text, why, lambda text: self._try(text)[1])
            raise GrammarError(f"{grammar.name}: {why}")
        return GbnfGrammar(self._vocabulary, sampler, _writable(self._vocabulary, grammar.text))

    def _try(self, text: str) -> tuple[_Sampler | None, str]:
        """Let llama.cpp read a grammar; return what it made of it, or why it refuses it."""
        llama = self._vocabulary.llama
        with collect_errors() as errors:
            sampler = llama.llama_sampler_init_grammar(self._vocabulary.address, text.encode(), b"root")
        if not sampler:
            return None, reason(errors, "llama.cpp does not say why it refuses it")
        return _Sampler(llama, sampler), ""


def _writable(vocabulary: Vocabulary, text: str) -> NDArray[np.int32]:
    """Return the tokens that texts of a grammar are made of, those that end them among them.

    llama.cpp compares how tokens are spelled, and so takes those that control or are unknown, which print
    nothing, for text. They may come where the grammar names them, as `<token>` or `<[number]>`.
    """
    named = {word["token"] for word in _NAMED.finditer(text) if word["token"]}
    silent = {
        token
        for token, spelled in vocabulary.special_tokens().items()
        if spelled.decode(errors="replace") not in named and f"<[{token}]>" not in named
    }
    silent.difference_update(vocabulary.end_tokens().tolist())
    return np.setdiff1d(np.arange(vocabulary.n_tokens, dtype=np.int32), list(silent)).astype(np.int32)


class GbnfGrammar(Compiled):
    """A grammar that llama.cpp compiled; writable: the tokens that it is asked about."""

    def __init__(self, vocabulary: Vocabulary, sampler: _Sampler, writable: NDArray[np.int32]) -> None:
        self._sampler, self.writable = sampler, writable
        self.ends = vocabulary.end_tokens()
        self.n_words = -(-vocabulary.n_tokens // 32)

    def start(self) -> GbnfState:
        return GbnfState(self, [self._sampler])


class GbnfState(State):
    """A place in a grammar, as `engine.State` has it. It keeps every place that it came by."""

    def __init__(self, grammar: GbnfGrammar, samplers: list[_Sampler]) -> None:
        self._grammar, self._samplers = grammar, samplers

    def mask(self, words: NDArray[np.int32]) -> None:
        bits = np.zeros(32 * len(words), bool)
        bits[self._grammar.writable] = self._samplers[-1].all_of(self._grammar.writable)
        words[:] = np.packbits(bits, bitorder="little").view(np.int32)

    def allows(self, token: int) -> bool:
        writable = self._grammar.writable
        at = int(np.searchsorted(writable, token))
        if at == len(writable) or writable[at] != token:
            return False
        return bool(self._samplers[-1].allowed(np.array([token], np.int32))[0])

    def advance(self, token: int) -> None:
        if not self.allows(token):  # llama.cpp would end the process
            raise GrammarError(f"token {token} may not come here")
        following = self._samplers[-1].after(token)
        self._samplers[-1].forget()
        self._samplers.append(following)

    def roll_back(self, n_tokens: int) -> None:
        del self._samplers[len(self._samplers) - n_tokens :]

    def copy(self) -> GbnfState:
        return GbnfState(self._grammar, list(self._samplers))

    @property
    def may_end(self) -> bool:
        return bool(self._samplers[-1].allowed(self._grammar.ends).any())

    @property
    def must_end(self) -> bool:
        if not self.may_end:
            return False
        n_allowed = int(self._samplers[-1].all_of(self._grammar.writable).sum())
        return n_allowed == len(self._grammar.ends)


class _Sampler:
    """llama.cpp's sampler at one place; places are never changed, but copied."""

    def __init__(self, llama: Any, sampler: Any) -> None:
        self._llama, self._sampler = llama, sampler
        self._of_all: NDArray[np.bool_] | None = None

    def all_of(self, writable: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Say of all tokens which may come; that is kept until `forget`, as masks and ends ask for it."""
        if self._of_all is None:
            self._of_all = self.allowed(writable)
        return self._of_all

    def forget(self) -> None:
        """Drop what is kept: a text has many places, and a vocabulary many tokens."""
        self._of_all = None

    def allowed(self, tokens: NDArray[np.int32]) -> NDArray[np.bool_]:
        entries = np.zeros(
            len(tokens), np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
        )
        entries["id"] = tokens
        array = self._llama.llama_token_data_array(
            data=entries.ctypes.data_as(ctypes.POINTER(self._llama.llama_token_data)),
            size=len(entries),
            selected=-1,
            sorted=False,
        )
        self._llama.llama_sampler_apply(self._sampler, ctypes.byref(array))
        return entries["logit"] == 0

    def after(self, token: int) -> _Sampler:
        copy = self._llama.llama_sampler_clone(self._sampler)
        self._llama.llama_sampler_accept(copy, token)
        return _Sampler(self._llama, copy)

    def __del__(self) -> None:
        self._llama.llama_sampler_free(self._sampler)
