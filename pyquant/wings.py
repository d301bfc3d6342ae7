"""Parts of pyquant that the rest does without: each adds commands and metrics, and none is imported by name.

A wing is a package with two constants:

COMMANDS
    (name, module, attribute) of each command: a function, or a typer application with commands of its own.
METRICS
    Modules whose import adds metrics to `pyquant.study.metric.Metric.registry`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType

WINGS = ("pyquant.generation",)


def wings() -> Iterator[ModuleType]:
    """Import the wings that are installed, one after the other."""
    for name in WINGS:
        try:
            wing = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:  # it is there, and lacks something
                raise
        else:
            yield wing
