"""Parts of pyquant that the rest does without: each adds commands and metrics, and none is imported by name.

A wing is a package with two constants:

COMMANDS
    (name, module, attribute) of each command: a function, or a typer application with commands of its own.
METRICS
    Modules whose import adds metrics to `pyquant.study.metric.Metric.registry`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from types import ModuleType

WINGS = ("pyquant.generation",)


def wings() -> Iterator[ModuleType]:
    """Import the wings that are installed, one after the other."""
    for name in WINGS:
        if importlib.util.find_spec(name) is not None:
            yield importlib.import_module(name)
