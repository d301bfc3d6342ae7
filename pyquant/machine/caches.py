"""Find the folder for what pyquant can make again."""

from __future__ import annotations

import os
from pathlib import Path

CACHE = "PYQUANT_CACHE"


def cache_folder() -> Path | None:
    """Return where caches are: PYQUANT_CACHE, else `pyquant` in the folder that the system has for them.

    Returns: the folder, which need not exist; None where PYQUANT_CACHE is empty, so that nothing is kept.
    """
    if CACHE in os.environ:
        return Path(os.environ[CACHE]) if os.environ[CACHE] else None
    place = os.environ.get("XDG_CACHE_HOME", "")
    # The specification has relative paths ignored.
    return (Path(place) if os.path.isabs(place) else Path("~/.cache").expanduser()) / "pyquant"
