"""Reading TOML, the same way for configurations, studies and tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyquant.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """What a TOML file says. what: kind of file, to name where it is missing. Raises ConfigError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such {what} file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: not a readable TOML file: {error}") from None
