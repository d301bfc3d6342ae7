"""Conversations in files with a JSON object in each line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyquant.errors import TextError
from pyquant.files.json import parse_json


def json_lines(content: bytes, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read the object of each line of a file that is not empty, after its place, FILE:LINE.

    Raises TextError: a line is no object, or the content no UTF-8.
    """
    try:
        lines = content.decode("utf-8-sig").split("\n")  # JSON's strings have other ends of lines
    except UnicodeDecodeError as error:
        raise TextError(f"{path}: cannot be read: {error}") from None
    for n, line in enumerate(lines, start=1):
        if line.strip():
            yield f"{path}:{n}", _object(line, f"{path}:{n}")


def _object(line: str, place: str) -> dict[str, Any]:
    try:
        entry = parse_json(line)
    except ValueError as error:
        raise TextError(f"{place}: is no JSON: {error}") from None
    if not isinstance(entry, dict):
        raise TextError(f"{place}: expected an object")
    return entry


def check_messages(messages: list[Any], place: str) -> None:
    """Refuse what is no conversation: messages with a role, and a text or parts of it. Raises TextError."""
    for number, message in enumerate(messages):
        _check_message(message, f"{place}: message {number + 1}")


def _check_message(message: Any, place: str) -> None:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise TextError(f"{place}: expected an object with role and content")
    content = message.get("content")
    if isinstance(content, str) or (content is None and message.get("tool_calls")):
        return
    if not isinstance(content, list):
        raise TextError(f"{place}: content: expected a text, or a list of parts")
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise TextError(
                f'{place}: content: only parts of text are read: {{"type": "text", "text": TEXT}}'
            )
