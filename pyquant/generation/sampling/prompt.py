"""Prompts that a model is to continue: a text as it is, or a conversation by the model's chat template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import ModelFileError, TextError
from pyquant.files.text import text_bytes
from pyquant.files.utf8 import utf8
from pyquant.llama.chat_template import Message, Template, own_template, render, rendered_tokens
from pyquant.llama.messages import check_messages, json_lines
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
            template = self.template or own_template(model, self.tools)
            if template is None:
                way_out = "give --chat-template FILE, or a prompt without --chat"
                raise ModelFileError(f"{model.path}: has no chat template; {way_out}")
            rendered = render(model, self.messages, self.name, tools=self.tools, template=template)
            tokens = rendered_tokens(model, rendered, self.name)
        else:
            # Special tokens that are spelled in a prompt are taken as such, as llama.cpp's tools do.
            tokens = model.vocabulary.tokenize(utf8(self.text, self.name), special=True)
            # A token that the vocabulary adds at the end would end the prompt, which goes on.
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
    prompts = [_prompt(entry, place) for place, entry in json_lines(text_bytes(path), path)]
    if not prompts:
        raise TextError(f"{path}: has no prompts")
    return prompts


def _prompt(entry: dict[str, Any], place: str) -> Prompt:
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
    check_messages(messages, place)
    return Prompt(messages=messages, name=name, tools=tools)
