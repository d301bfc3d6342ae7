"""Read and write JSON in the same way for results, histograms and what is kept between runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pyquant.errors import ConfigError
from pyquant.files.nesting import parse_bounded
from pyquant.files.output_file import write_bytes


def parse_json(text: str) -> Any:
    """Parse JSON. Raises ValueError: it is not JSON, is nested too deeply, or has too large an integer."""
    return parse_bounded(text, json.loads, json.JSONDecodeError)


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file.

    Raises OSError: the file cannot be read. ValueError: it is not JSON in UTF-8, or is nested too deeply.
    """
    return parse_json(Path(path).read_text(encoding="utf-8"))


def read_output(path: Path, command: str, schema: str) -> dict[str, Any]:
    """Read what a command wrote with `-o`. Raises ConfigError: it cannot be read, or has another schema."""
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as an output of `{command}`: {error}") from None
    if not isinstance(content, dict) or content.get("schema") != schema:
        raise ConfigError(f"{path}: is no output of `{command}`: its schema is not {schema}")
    return content


def write_json(path: Path, content: Any, *, sources: list[Path], force: bool) -> None:
    """Write a JSON file, indented. Takes `sources` and `force`, and raises, as `write_bytes` does."""
    write_bytes(path, (json.dumps(content, indent=2) + "\n").encode(), sources=sources, force=force)
