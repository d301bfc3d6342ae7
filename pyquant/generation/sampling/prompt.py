"""Prompts that a model is to continue: a text as it is, or a conversation by the model's chat template."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import TextError
from pyquant.llama.chat_template import Message, render
from pyquant.llama.model import Model


@dataclass(frozen=True)
class Prompt:
    """A text, or the messages of a conversation whose next one is to be generated.

    `messages` are empty where there is a text; `name` is what results call it.
    """

    text: str | None = None
    messages: Sequence[Message] = ()
    name: str = "prompt"

    def chat(self) -> Prompt:
        """Return it as a conversation: a text becomes what a user says."""
        if self.text is None:
            return self
        return Prompt(messages=[{"role": "user", "content": self.text}], name=self.name)

    def tokens(self, model: Model) -> NDArray[np.int32]:
        """Cut it into the model's tokens; in a conversation special tokens are taken as such.

        Returns
        -------
        tokens : (n,) int32
            At least one.

        Raises
        ------
        ModelFileError
            The model has no chat template, or it refuses the messages.
        TextError
            There is not a single token.
        """
        if self.text is None:
            rendered = render(model, self.messages, self.name)
            begin, _ = model.vocabulary.begin_and_end()
            # The template writes the token that begins texts itself, if it wants one.
            ends = not (begin and rendered.startswith(begin))
            tokens = model.vocabulary.tokenize(rendered.encode(), ends=ends, special=True)
        else:
            # Special tokens that are spelled in a prompt are taken as such, as llama.cpp's tools do.
            tokens = model.vocabulary.tokenize(self.text.encode(), special=True)
        if len(tokens) == 0:
            raise TextError(f"{self.name}: it is empty, and {model.path} has no token that begins a text")
        return tokens


def read_prompts(path: Path) -> list[Prompt]:
    """Read prompts from a file with a JSON object in each line: `prompt`, a text, or `messages`, a list.

    Raises
    ------
    TextError
        It cannot be read, has no prompts, or a line is something else; its number is named.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TextError(f"{path}: cannot be read: {error}") from None
    prompts = [_prompt(line, f"{path}:{n}") for n, line in enumerate(lines, start=1) if line.strip()]
    if not prompts:
        raise TextError(f"{path}: has no prompts")
    return prompts


def _prompt(line: str, place: str) -> Prompt:
    try:
        entry: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TextError(f"{place}: is no JSON: {error}") from None
    if not isinstance(entry, dict):
        raise TextError(f"{place}: expected an object with prompt or messages")
    name = str(entry.get("name", place))
    text, messages = entry.get("prompt"), entry.get("messages")
    if isinstance(text, str) and messages is None:
        return Prompt(text, name=name)
    if text is None and isinstance(messages, list) and messages and all(map(_is_message, messages)):
        return Prompt(messages=messages, name=name)
    raise TextError(f'{place}: expected "prompt": a text, or "messages": a list of role and content')


def _is_message(entry: Any) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("role", "content"))
