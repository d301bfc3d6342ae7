"""Engine `llguidance`: Lark, JSON schema, regular expressions and GBNF."""

from __future__ import annotations

import re

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.gbnf_to_lark import gbnf_to_lark
from numpy.typing import NDArray

from pyquant.errors import GrammarError
from pyquant.generation.grammar.bounds import check_bounds
from pyquant.generation.grammar.engine import Compiled, State
from pyquant.generation.grammar.grammar import Grammar, Language
from pyquant.llama.vocabulary import Vocabulary

# The default of 50,000 stops a text in full ANSI C after some 75 tokens.
STEP_MAX_ITEMS = 2_000_000
# %ignore is skipped before the first token as well, as the package lark does it.
SKIP_AT_THE_BEGINNING = '\n%llguidance {"allow_initial_skip": true}\n'

# What llguidance calls a place where no token is allowed, by a terminal or for want of tokens.
NOTHING_CAN_COME = "NoExtensionBias"
_TERMINAL = re.compile(r"^[ \t]*([A-Z_][A-Z0-9_]*)(?:\.-?\d+)?[ \t]*:", re.MULTILINE)


class LLGuidance:
    """The engine for the vocabulary of a model, which has to live as long.

    Making it takes about a second for 50,000 tokens.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tokenizer = LLTokenizer.from_llamacpp(  # type: ignore[attr-defined]
            tokens=vocabulary.spelled_pieces(),
            vocab_ptr=vocabulary.address,
            tokenize_fptr=vocabulary.tokenize_address,
            eos_token=vocabulary.end_tokens().tolist(),
            slices=None,
        )
        self._limits = LLParserLimits(step_max_items=STEP_MAX_ITEMS)

    def compile(self, grammar: Grammar) -> LLGuidanceGrammar:
        """Compile a grammar. Raises GrammarError, with llguidance's reason, which has line and column."""
        check_bounds(grammar)
        try:
            source = _SOURCES[grammar.language](grammar.text)
        except Exception as error:  # of the converter's parser
            raise GrammarError(f"{grammar.name}: {error}") from None
        failed, messages = LLMatcher.validate_grammar_with_warnings(
            source, self._tokenizer, limits=self._limits
        )
        if failed:
            raise GrammarError(f"{grammar.name}: {messages[0].rstrip()}")
        return LLGuidanceGrammar(self._matcher(source), self._tokenizer.vocab_size, grammar, self)

    def terminal_of_nothing(self, grammar: Grammar) -> str | None:
        """Return the first terminal that no token can begin; None where each has one, or none has a name."""
        if grammar.language is not Language.LARK:
            return None
        for name in _TERMINAL.findall(grammar.text):
            # The rule that begins texts gets another name, so that the terminal can be all of a text.
            alone = re.sub(r"\bstart\b", "before_start", grammar.text) + f"\nstart: {name}\n"
            words = np.empty(-(-self._tokenizer.vocab_size // 32), np.int32)
            matcher = self._matcher(LLMatcher.grammar_from_lark(alone))
            matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            if _error(matcher) == NOTHING_CAN_COME:
                return str(name)
        return None

    def _matcher(self, source: str) -> LLMatcher:
        return LLMatcher(self._tokenizer, source, log_level=0, limits=self._limits)


_SOURCES = {
    Language.LARK: lambda text: LLMatcher.grammar_from_lark(text + SKIP_AT_THE_BEGINNING),
    Language.GBNF: lambda text: LLMatcher.grammar_from_lark(gbnf_to_lark(text)),
    Language.JSON_SCHEMA: LLMatcher.grammar_from_json_schema,
    Language.REGEX: LLMatcher.grammar_from_regex,
}


class LLGuidanceGrammar(Compiled):
    """A grammar that llguidance compiled."""

    def __init__(self, matcher: LLMatcher, n_vocab: int, grammar: Grammar, engine: LLGuidance) -> None:
        self._matcher, self._grammar, self._engine = matcher, grammar, engine
        self.n_words = -(-n_vocab // 32)

    def start(self) -> LLGuidanceState:
        return LLGuidanceState(self._matcher.deep_copy(), self._grammar, self._engine)


class LLGuidanceState(State):
    """A place in a grammar; see `pyquant.generation.grammar.engine.State`."""

    def __init__(self, matcher: LLMatcher, grammar: Grammar, engine: LLGuidance) -> None:
        self._matcher, self._grammar, self._engine = matcher, grammar, engine

    def mask(self, words: NDArray[np.int32]) -> None:
        self._matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if _error(self._matcher) == NOTHING_CAN_COME:
            if name := self._engine.terminal_of_nothing(self._grammar):
                raise GrammarError(
                    f"{self._grammar.name}: terminal {name} matches nothing that this vocabulary can spell"
                )
            words[:] = 0
            return
        self._check()

    def allows(self, token: int) -> bool:
        return self._matcher.validate_tokens([token]) == 1

    def advance(self, token: int) -> None:
        self._matcher.consume_token(token)
        self._check()

    def roll_back(self, n_tokens: int) -> None:
        self._matcher.rollback(n_tokens)
        self._check()

    def copy(self) -> LLGuidanceState:
        return LLGuidanceState(self._matcher.deep_copy(), self._grammar, self._engine)

    @property
    def may_end(self) -> bool:
        return self._matcher.is_accepting()

    @property
    def must_end(self) -> bool:
        return self._matcher.is_stopped()

    def _check(self) -> None:
        if error := _error(self._matcher):
            raise GrammarError(f"{self._grammar.name}: llguidance gives up: {error}")


def _error(matcher: LLMatcher) -> str:
    """Return the first line of an error, or "": what follows shows the whole state and grammar."""
    return matcher.get_error().splitlines()[0] if matcher.is_error() else ""
