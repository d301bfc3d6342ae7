"""Engine `llguidance`: Lark, JSON schema, regular expressions and GBNF."""

from __future__ import annotations

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.gbnf_to_lark import gbnf_to_lark
from numpy.typing import NDArray

from pyquant.errors import GrammarError
from pyquant.grammar.bounds import check_bounds
from pyquant.grammar.grammar import Grammar, Language
from pyquant.llama.vocabulary import Vocabulary

# The default of 50,000 stops a text in full ANSI C after some 75 tokens.
STEP_MAX_ITEMS = 2_000_000
# %ignore is skipped before the first token as well, as the package lark does it.
SKIP_AT_THE_BEGINNING = '\n%llguidance {"allow_initial_skip": true}\n'


class LLGuidance:
    """The engine for one vocabulary. Making it takes about a second for 50,000 tokens.

    Parameters
    ----------
    vocabulary
        Of a model, which has to live as long as the engine.
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
        matcher = LLMatcher(self._tokenizer, source, log_level=0, limits=self._limits)
        return LLGuidanceGrammar(matcher, self._tokenizer.vocab_size, grammar.name)


_SOURCES = {
    Language.LARK: lambda text: LLMatcher.grammar_from_lark(text + SKIP_AT_THE_BEGINNING),
    Language.GBNF: lambda text: LLMatcher.grammar_from_lark(gbnf_to_lark(text)),
    Language.JSON_SCHEMA: LLMatcher.grammar_from_json_schema,
    Language.REGEX: LLMatcher.grammar_from_regex,
}


class LLGuidanceGrammar:
    """A grammar that llguidance compiled."""

    def __init__(self, matcher: LLMatcher, n_vocab: int, name: str) -> None:
        self._matcher, self._name = matcher, name
        self.n_words = -(-n_vocab // 32)

    def start(self) -> LLGuidanceState:
        """Return the state before the first token."""
        return LLGuidanceState(self._matcher.deep_copy(), self._name)


class LLGuidanceState:
    """A place in a grammar; see `pyquant.grammar.engine.State`."""

    def __init__(self, matcher: LLMatcher, name: str) -> None:
        self._matcher, self._name = matcher, name

    def mask(self, words: NDArray[np.int32]) -> None:
        """Write which tokens may come next. Python's lock is free meanwhile."""
        self._matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        self._check()

    def allows(self, token: int) -> bool:
        """Return whether a token may come next."""
        return self._matcher.validate_tokens([token]) == 1

    def advance(self, token: int) -> None:
        """Take a token."""
        self._matcher.consume_token(token)
        self._check()

    def roll_back(self, n_tokens: int) -> None:
        """Take the last tokens back."""
        self._matcher.rollback(n_tokens)
        self._check()

    def copy(self) -> LLGuidanceState:
        """Return a state of its own at the same place."""
        return LLGuidanceState(self._matcher.deep_copy(), self._name)

    def forced(self) -> list[int]:
        """Return the tokens that have to come now."""
        return list(self._matcher.compute_ff_tokens())

    def forced_bytes(self) -> bytes:
        """Return the bytes that have to come now."""
        return self._matcher.compute_ff_bytes()

    @property
    def may_end(self) -> bool:
        """Say whether the text may end here."""
        return self._matcher.is_accepting()

    @property
    def must_end(self) -> bool:
        """Say whether nothing else can come."""
        return self._matcher.is_stopped()

    def _check(self) -> None:
        if self._matcher.is_error():
            # Its first line: what follows shows the whole state and grammar.
            reason = self._matcher.get_error().splitlines()[0]
            raise GrammarError(f"{self._name}: llguidance gives up: {reason}")
