"""Engines by name."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np

from pyquant.errors import ConfigError, GrammarError
from pyquant.files.utf8 import utf8
from pyquant.generation.grammar.bounded_blanks import BoundedBlanks
from pyquant.generation.grammar.engine import Compiled, Engine
from pyquant.generation.grammar.grammar import GRAMMARS, Grammar, Language
from pyquant.generation.grammar.packages import needed_packages
from pyquant.generation.grammar.triggered import Triggered
from pyquant.llama.vocabulary import Vocabulary

_CLASSES = {"llguidance": "LLGuidance", "lr": "Lr", "gbnf": "Gbnf"}
ENGINES = tuple(_CLASSES)


def default_engine(grammar: Grammar) -> str:
    """Return the name of the engine that reads a grammar as its language has it, where none is named."""
    if grammar.language is Language.GBNF:
        return "gbnf"
    return "lr" if Path(grammar.name).parent == GRAMMARS else "llguidance"  # which refuses most bundled ones


def check_engine(name: str) -> None:
    """Refuse a name that no engine has. Raises ConfigError."""
    if name not in ENGINES:
        raise ConfigError(f"engine: expected one of {', '.join(ENGINES)}, got {name!r}")


def make_engine(name: str, vocabulary: Vocabulary) -> Engine:
    """Make an engine for a vocabulary.

    Raises
    ------
    ConfigError
        There is no engine of this name.
    GrammarError
        The package that it is made of is not installed.
    """
    check_engine(name)
    with needed_packages():
        module = import_module(f"pyquant.generation.grammar.{name}_engine")
    engine: Engine = getattr(module, _CLASSES[name])(vocabulary)
    return engine


def compile_for(
    vocabulary: Vocabulary, grammar: Grammar, engine: str | None = None, *, trigger: str | None = None
) -> Compiled:
    """Compile a grammar by an engine, or by that of its language.

    trigger: a text behind which it begins; None: it begins the text. Blanks of JSON schemas are bounded.
    Raises ConfigError, GrammarError, and TextError where a text is no Unicode.
    """
    utf8(grammar.text, grammar.name)
    compiled = compile_by(make_engine(engine or default_engine(grammar), vocabulary), grammar, vocabulary)
    if trigger is not None:
        return Triggered(compiled, utf8(trigger, "trigger"), vocabulary.pieces(), vocabulary.end_tokens())
    return compiled


def compile_by(engine: Engine, grammar: Grammar, vocabulary: Vocabulary) -> Compiled:
    """Compile a grammar by an engine for this vocabulary, blanks of JSON bounded. Raises GrammarError."""
    compiled = compile_grammar(engine, grammar)
    is_json = grammar.language is Language.JSON_SCHEMA
    return BoundedBlanks(compiled, vocabulary.pieces()) if is_json else compiled


def compile_grammar(engine: Engine, grammar: Grammar) -> Compiled:
    """Compile a grammar of which the engine's vocabulary can write something.

    Raises
    ------
    GrammarError
        The engine refuses it, or no token can begin a text of it.
    """
    compiled = engine.compile(grammar)
    words = np.empty(compiled.n_words, np.int32)
    compiled.start().mask(words)
    if not words.any():
        raise GrammarError(
            f"{grammar.name}: no text can begin: the grammar has none, or the model's vocabulary has no "
            "token that spells its first character"
        )
    return compiled
