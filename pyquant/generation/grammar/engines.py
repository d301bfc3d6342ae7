"""Engines by name."""

from __future__ import annotations

import numpy as np

from pyquant.errors import ConfigError, GrammarError
from pyquant.generation.grammar.engine import Compiled, Engine
from pyquant.generation.grammar.grammar import Grammar
from pyquant.llama.vocabulary import Vocabulary

ENGINES = ("llguidance", "lr", "gbnf")


def make_engine(name: str, vocabulary: Vocabulary) -> Engine:
    """Make an engine for a vocabulary.

    Raises
    ------
    ConfigError
        There is no engine of this name.
    """
    if name == "llguidance":
        from pyquant.generation.grammar.llguidance_engine import LLGuidance

        return LLGuidance(vocabulary)
    if name == "lr":
        from pyquant.generation.grammar.lr_engine import Lr

        return Lr(vocabulary)
    if name == "gbnf":
        from pyquant.generation.grammar.gbnf_engine import Gbnf

        return Gbnf(vocabulary)
    raise ConfigError(f"engine: expected one of {', '.join(ENGINES)}, got {name!r}")


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
