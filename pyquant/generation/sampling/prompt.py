"""Prompts that a model is to continue: a text as it is, or a conversation by the model's chat template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import TextError
from pyquant.files.json import parse_json
from pyquant.files.utf8 import utf8
from pyquant.llama.chat_template import Message, Template, render
from pyquant.llama.model import Model


@dataclass(frozen=True)
class Prompt:
    """A text, or the messages of a conversation whose next one is to be generated.

    `messages` are empty where there is a text; `tools` describe functions that the model may call; `template`
    is None for the model's own; `name` is what results call it.
    """

    text: str | None = None
    messages: Sequence[Message] = ()
    name: str = "prompt"
    tools: Sequence[Any] | None = None
    template: Template | None = None

    def chat(self, *, system: str | None = None, template: Template | None = None) -> Prompt:
        """Return it as a conversation: a text becomes what a user says.

        system: a message that it begins with, where it has none of its own.
        """
        messages = [{"role": "user", "content": self.text}] if self.text is not None else list(self.messages)
        if system is not None and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": system})
        return Prompt(messages=messages, name=self.name, tools=self.tools, template=template)

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
            rendered = render(model, self.messages, self.name, tools=self.tools, template=self.template)
            begin, _ = model.vocabulary.begin_and_end()
            # The template writes the token that begins texts itself, if it wants one.
            ends = not (begin and rendered.startswith(begin))
            text = rendered
        else:
            # Special tokens that are spelled in a prompt are taken as such, as llama.cpp's tools do.
            ends, text = True, self.text
        tokens = model.vocabulary.tokenize(utf8(text, self.name), ends=ends, special=True)
        if ends:  # a token that the vocabulary adds at the end would end the prompt, which goes on
            tokens = model.vocabulary.continuing(tokens)
        if len(tokens) == 0:
            raise TextError(f"{self.name}: it is empty, and {model.path} has no token that begins a text")
        return tokens


def read_prompts(path: Path) -> list[Prompt]:
    """Read prompts from a file with a JSON object in each line: `prompt`, a text, or `messages`, a list.

    Beside `messages` may stand `tools`.

    Raises
    ------
    TextError
        It cannot be read, has no prompts, or a line is something else; its number is named.
    """
    try:
        lines = path.read_bytes().decode("utf-8-sig").split("\n")  # JSON's strings have other ends of lines
    except (OSError, UnicodeDecodeError) as error:
        raise TextError(f"{path}: cannot be read: {error}") from None
    prompts = [_prompt(line, f"{path}:{n}") for n, line in enumerate(lines, start=1) if line.strip()]
    if not prompts:
        raise TextError(f"{path}: has no prompts")
    return prompts


def _prompt(line: str, place: str) -> Prompt:
    try:
        entry = parse_json(line)
    except ValueError as error:
        raise TextError(f"{place}: is no JSON: {error}") from None
    if not isinstance(entry, dict):
        raise TextError(f"{place}: expected an object with prompt or messages")
    name, tools = str(entry.get("name", place)), entry.get("tools")
    utf8(name, f"{place}: name")
    if name.splitlines() != [name]:
        raise TextError(f"{place}: name: expected a text of one line")
    text, messages = entry.get("prompt"), entry.get("messages")
    if isinstance(text, str) and messages is None and tools is None:
        return Prompt(text, name=name)
    if text is not None or not isinstance(messages, list) or not messages:
        raise TextError(
            f'{place}: expected "prompt": a text, or "messages": a list of role and content, with "tools" '
            f"or without"
        )
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise TextError(f"{place}: tools: expected a list of objects")
    for number, message in enumerate(messages):
        _check_message(message, f"{place}: message {number + 1}")
    return Prompt(messages=messages, name=name, tools=tools)


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
