"""Read TOML in the same way for configurations, studies, tables and sensitivities, and write its strings."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from pyquant.errors import ConfigError, said_by_system
from pyquant.files.nesting import DEEPEST, TooDeep, parse_bounded

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LARGEST = 4 << 20  # bytes; tables for each of 20,000 tensors take fewer

# A key of many parts: tomllib takes time and memory by the square of their number.
LONG_KEY = re.compile(rf"""(?<![\w-])(?:(?:"[^"\n]*"|'[^'\n]*'|[\w-]+)[ \t]*\.[ \t]*){{{DEEPEST}}}""")


def read_toml(path: str | os.PathLike[str], what: str) -> dict[str, Any]:
    """Read a TOML file.

    what: what the file is, for the error where it is missing: "table", "configuration".
    Raises ConfigError: the file is missing, not TOML, too large or nested too deeply.
    """
    path = Path(path)
    try:
        return _parse(_read(path))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such {what} file") from None
    except OSError as error:
        raise ConfigError(said_by_system(error, path)) from None
    except ValueError as error:
        raise ConfigError(f"{path}: not a readable TOML file: {error}") from None


def toml_string(text: str) -> str:
    """Write any text as a string or a key of TOML: as JSON, but without its pairs of surrogates."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)  # whatever the file is: a model, or a pipe without an end
    if len(data) > LARGEST:
        raise ValueError(f"larger than {LARGEST:,} bytes")
    return data.decode("utf-8")


def _parse(text: str) -> dict[str, Any]:
    if LONG_KEY.search(text):
        raise TooDeep
    content: dict[str, Any] = parse_bounded(text, tomllib.loads, tomllib.TOMLDecodeError)
    return content
