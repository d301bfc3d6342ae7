"""Regular expressions that users give for names of tensors."""

from __future__ import annotations

import re
import warnings

from pyquant.errors import ConfigError


def compile_regex(pattern: str, where: str) -> re.Pattern[str]:
    """Compile an expression of Python's `re`. Raises ConfigError, which begins with `where`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of what a later Python may read otherwise
            return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"{where}: {pattern!r} is not a regular expression: {error}") from None
