"""A grammar as text, in one of the languages that people write grammars in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from pyquant.errors import GrammarError, said_by_system


class Language(Enum):
    """Language in which a grammar is written."""

    LARK = "lark"  # as the Python package lark has it: rules, terminals, %ignore, %import
    GBNF = "gbnf"  # llama.cpp's own
    JSON_SCHEMA = "json schema"
    REGEX = "regex"


GRAMMARS = Path(__file__).parent / "grammars"  # those bundled
SUFFIXES = {".lark": Language.LARK, ".gbnf": Language.GBNF, ".json": Language.JSON_SCHEMA}


@dataclass(frozen=True)
class Grammar:
    """Texts that are allowed."""

    language: Language
    text: str
    name: str = "grammar"  # in messages: a file's path, or the option that it came with


def read_grammar(path: Path, language: Language | None = None) -> Grammar:
    """Read a grammar from a file, or one bundled.

    Parameters
    ----------
    path
        A file, or the name of a grammar bundled, such as `json`.
    language
        None: by the file's suffix: .lark, .gbnf or .json, which is a JSON schema.

    Raises
    ------
    GrammarError
        It cannot be read, or its suffix is none of these.
    """
    bundled = {file.stem: file for file in sorted(GRAMMARS.glob("*.lark"))}
    path = path if language else bundled.get(str(path), path)
    language = language or SUFFIXES.get(path.suffix)
    if language is None:
        raise GrammarError(
            f"{path}: a grammar's file ends in {', '.join(SUFFIXES)}; bundled are {', '.join(bundled)}"
        )
    try:
        return Grammar(language, path.read_text(encoding="utf-8-sig"), str(path))
    except OSError as error:
        raise GrammarError(said_by_system(error, path)) from None
    except UnicodeDecodeError as error:
        raise GrammarError(f"{path}: cannot be read: it is not UTF-8 from byte {error.start} on") from None
