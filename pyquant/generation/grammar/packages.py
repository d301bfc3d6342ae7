"""Packages that grammars need, and that a plain installation of pyquant does without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyquant.errors import GrammarError

PACKAGES = ("lark", "llguidance")


@contextmanager
def needed_packages() -> Iterator[None]:
    """Import within it what uses them. Raises GrammarError where one is missing, and says how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in PACKAGES:
            raise
        raise GrammarError(
            f"grammars need the package {package}: pip install 'pyquant[generation]'"
        ) from None
