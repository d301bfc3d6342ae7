"""Grammars that decide which tokens may come next: one interface, several engines.

For llama-cpp-python:

    from pyquant.generation.grammar import GrammarProcessor

    processor = GrammarProcessor(llama, "c")
    llama("int main", logits_processor=[processor])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyquant.generation.grammar.logits_processor import GrammarProcessor

__all__ = ["GrammarProcessor"]


def __getattr__(name: str) -> Any:
    if name != "GrammarProcessor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyquant.generation.grammar.logits_processor import GrammarProcessor  # it loads an engine's libraries

    return GrammarProcessor
