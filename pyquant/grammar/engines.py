"""Engines by name."""

from __future__ import annotations

from pyquant.errors import ConfigError
from pyquant.grammar.engine import Engine
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
        from pyquant.grammar.llguidance_engine import LLGuidance

        return LLGuidance(vocabulary)
    if name == "lr":
        from pyquant.grammar.lr_engine import Lr

        return Lr(vocabulary)
    if name == "gbnf":
        from pyquant.grammar.gbnf_engine import Gbnf

        return Gbnf(vocabulary)
    raise ConfigError(f"engine: expected one of {', '.join(ENGINES)}, got {name!r}")
