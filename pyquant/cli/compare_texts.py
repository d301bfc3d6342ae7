"""Texts that `pyquant compare` is given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from pyquant.cli import paths
from pyquant.errors import ConfigError
from pyquant.files.text import NamedText

if TYPE_CHECKING:
    from pyquant.evaluate.samples import Named


@dataclass(frozen=True)
class ComparedTexts:
    """Texts by name, each a group of rows."""

    text: Annotated[
        Optional[list[NamedText]],
        typer.Option(
            "--text",
            metavar="[NAME=]FILE",
            parser=paths.named_text,
            help="UTF-8 text to evaluate on; - is standard input; repeatable.",
        ),
    ] = None
    chat: Annotated[
        Optional[list[paths.NamedPath]],
        typer.Option(
            "--chat",
            metavar="[NAME=]FILE.jsonl",
            parser=paths.maybe_named_source,
            help="Conversations to evaluate on, an object with messages in each line, in the base's chat "
            "template; only answers are scored; repeatable.",
        ),
    ] = None
    bundled: Annotated[
        bool,
        typer.Option(
            "--bundled",
            help="Evaluate on small texts of pyquant's: code, prose, Chinese, and chat that the base writes.",
        ),
    ] = False

    def read(self, base: Path, threads: int | None) -> list[Named]:
        """Read them, in the order of the options. Raises ConfigError: there is none; TextError."""
        from pyquant.evaluate.chat import read_chat

        texts: list[Named] = [*(self.text or ())]
        texts += [read_chat(chat.path, chat.name) for chat in self.chat or ()]
        if self.bundled:
            from pyquant.evaluate.bundled import bundled_texts

            texts += bundled_texts(base, threads)
        if not texts:
            raise ConfigError("compare: give --text FILE, --chat FILE.jsonl or --bundled")
        return texts
