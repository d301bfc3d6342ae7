"""Texts of unknown origin within Markdown, YAML and shell commands: they stay texts."""

from __future__ import annotations

import json
import re
import shlex

SPECIAL = re.compile(r"[\\`*\[\]<>|!#~&$]|(?<![^\W_])_|_(?![^\W_])")  # underscores within words are none


def plain(text: str) -> str:
    """Return a line without characters that are not seen."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def cell(text: str) -> str:
    """Return a text for a table or a sentence in Markdown, in which no character has a meaning."""
    return SPECIAL.sub(lambda found: "\\" + found[0], " ".join(plain(text).split()))


def yaml(text: str) -> str:
    """Return a text as a YAML value."""
    return json.dumps(plain(text))


def command(*words: object) -> str:
    """Return a command that a shell takes, on one line."""
    return shlex.join(plain(str(word)) for word in words)
