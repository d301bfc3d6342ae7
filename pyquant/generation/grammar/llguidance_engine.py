"""Engine `llguidance`: Lark, JSON schema and regular expressions."""

from __future__ import annotations

import json
import re

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from numpy.typing import NDArray

from pyquant.errors import GrammarError
from pyquant.generation.grammar.bounds import check_bounds
from pyquant.generation.grammar.engine import Compiled, State
from pyquant.generation.grammar.grammar import Grammar, Language
from pyquant.generation.grammar.lark_literals import check_classes, check_lazy
from pyquant.generation.grammar.llguidance_reason import one_line
from pyquant.generation.grammar.schema.schema import for_llguidance
from pyquant.llama.vocabulary import Vocabulary

# The defaults: 50,000 stop a text in full ANSI C after some 75 tokens, and 2,000 a rule of as many
# alternatives.
STEP_MAX_ITEMS = 2_000_000
# Where bytes are forced all tokens that begin them may come, and not only llama.cpp's own cut: a model may
# prefer another one. Then llguidance never asks for tokens of a text, either.
NO_FORCING = '\n%llguidance {"no_forcing": true}\n'
# %ignore is skipped before the first token as well, as the package lark does it.
OF_LARK = '\n%llguidance {"no_forcing": true, "allow_initial_skip": true}\n'

# What llguidance calls a place where no token is allowed, by a terminal or for want of tokens.
NOTHING_CAN_COME = "NoExtensionBias"
_TERMINAL = re.compile(r"^[ \t]*([A-Z_][A-Z0-9_]*)(?:\.-?\d+)?[ \t]*:", re.MULTILINE)


class LLGuidance:
    """The engine for the vocabulary of a model."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        ends = vocabulary.end_tokens().tolist()
        if not ends:
            raise GrammarError(
                "engine llguidance: the model's vocabulary has no token that ends a text; give its "
                "tokenizer.ggml.eos_token_id"
            )
        self._tokenizer = LLTokenizer(_Tokens(vocabulary), eos_token=ends)  # type: ignore[arg-type]
        self._limits = LLParserLimits(step_max_items=STEP_MAX_ITEMS, max_items_in_row=STEP_MAX_ITEMS)

    def compile(self, grammar: Grammar) -> LLGuidanceGrammar:
        """Compile a grammar. Raises GrammarError, with llguidance's reason, which has line and column."""
        check_bounds(grammar)
        source = LLMatcher.grammar_from_lark(_in_lark(grammar))
        failed, messages = LLMatcher.validate_grammar_with_warnings(
            source, self._tokenizer, limits=self._limits
        )
        if failed:
            raise GrammarError(f"{grammar.name}: {one_line(messages[0], grammar.language)}")
        return LLGuidanceGrammar(self._matcher(source), self._tokenizer.vocab_size, grammar, self)

    def terminal_of_nothing(self, grammar: Grammar) -> str | None:
        """Return the first terminal that no token can begin; None where each has one, or none has a name."""
        if grammar.language is not Language.LARK:
            return None
        for name in _TERMINAL.findall(grammar.text):
            # The rule that begins texts gets another name, so that the terminal can be all of a text.
            alone = re.sub(r"\bstart\b", "before_start", grammar.text) + f"\nstart: {name}{NO_FORCING}"
            words = np.empty(-(-self._tokenizer.vocab_size // 32), np.int32)
            matcher = self._matcher(LLMatcher.grammar_from_lark(alone))
            matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            if _error(matcher) == NOTHING_CAN_COME:
                return str(name)
        return None

    def _matcher(self, source: str) -> LLMatcher:
        return LLMatcher(self._tokenizer, source, log_level=0, limits=self._limits)


class _Tokens:
    """A vocabulary as llguidance asks for it."""

    is_tokenizer_wrapper = True

    def __init__(self, vocabulary: Vocabulary) -> None:
        special = vocabulary.special_tokens()
        self.tokens = [special.get(token, piece) for token, piece in enumerate(vocabulary.pieces())]
        self.special_token_ids = list(special)  # they are no bytes of a text
        self.eos_token_id, self.bos_token_id = int(vocabulary.end_tokens()[0]), vocabulary.bos

    def __call__(self, _text: str) -> list[int]:
        return []  # not asked for, as nothing is forced; llama_tokenize can throw


def _in_lark(grammar: Grammar) -> str:
    if grammar.language is Language.LARK:
        check_lazy(grammar)
        check_classes(grammar)
        return grammar.text + OF_LARK
    if grammar.language is Language.REGEX:
        if (len(grammar.text) - len(grammar.text.rstrip("\\"))) % 2:  # llguidance would drop it
            raise GrammarError(f"{grammar.name}: \\ at the end; write \\\\ for a backslash")
        wrapped = json.loads(LLMatcher.grammar_from_regex(grammar.text))
        return str(wrapped["grammars"][0]["lark_grammar"]) + NO_FORCING
    if grammar.language is Language.JSON_SCHEMA:
        return f"start: %json {json.dumps(for_llguidance(grammar))}{NO_FORCING}"
    raise GrammarError(f"{grammar.name}: engine llguidance does not take GBNF; give --engine gbnf")


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
