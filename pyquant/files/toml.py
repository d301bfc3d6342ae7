"""Read TOML in the same way for configurations, studies, tables and sensitivities."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pyquant.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: str | os.PathLike[str], what: str) -> dict[str, Any]:
    """Read a TOML file.

    Parameters
    ----------
    path
        The file.
    what
        What the file is, for the error where it is missing: "table", "configuration".

    Raises
    ------
    ConfigError
        The file is missing, or not TOML.
    """
    path = Path(path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such {what} file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: not a readable TOML file: {error}") from None
