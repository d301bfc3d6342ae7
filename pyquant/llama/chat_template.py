"""A conversation as the text that a model's chat template makes of it, as Transformers renders it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import ModelFileError, TextError, said_by_system
from pyquant.files.utf8 import utf8
from pyquant.llama.jinja import environment
from pyquant.llama.model import Model

Message = Mapping[
    str, Any
]  # role: system, user, assistant, ...; content: a text, or parts; what templates know
Render = Callable[[Sequence[Message]], str]
TOOL_USE = "tool_use"  # the name of a second template, for conversations with tools
NEEDLE = "pyquant"


@dataclass(frozen=True)
class Template:
    """A chat template in Jinja, and the file that it came from."""

    source: str
    path: Path


def read_template(path: Path) -> Template:
    """Read a chat template from a file. Raises TextError."""
    try:
        return Template(path.read_bytes().decode("utf-8-sig"), path)
    except OSError as error:
        raise TextError(said_by_system(error, path)) from None
    except UnicodeDecodeError as error:
        raise TextError(f"{path}: cannot be read: it is not UTF-8 from byte {error.start} on") from None


def own_template(model: Model, tools: Sequence[Any] | None = None) -> Template | None:
    """Return a model's own template, with tools that for them if it has one; None if it has none."""
    source = (model.chat_template(TOOL_USE) if tools else None) or model.chat_template()
    return None if source is None else Template(source, model.path)


def render(
    model: Model,
    messages: Sequence[Message],
    name: str,
    *,
    tools: Sequence[Any] | None = None,
    template: Template | None = None,
    answer: bool = True,
) -> str:
    """Write a conversation by a chat template.

    The template is Jinja text; it runs in a sandbox that cannot reach Python's objects.

    Parameters
    ----------
    model
    messages
        Content in parts of text stays so where the template takes parts, and is joined elsewhere.
    name
        Of the conversation, for messages.
    tools
        Descriptions of functions that the model may call.
    template
        None: the model's own.
    answer
        Whether what begins the model's answer is written last.

    Raises
    ------
    ModelFileError
        There is no template, it is no Jinja, or it refuses the messages.
    """
    template = template or own_template(model, tools)
    if template is None:
        raise ModelFileError(
            f"{model.path}: has no chat template, which conversations need; give plain text, or another model"
        )
    begin, end = model.vocabulary.begin_and_end()

    try:
        compiled = environment().from_string(template.source)

        def write(messages: Sequence[Message]) -> str:
            return compiled.render(
                messages=[dict(message) for message in messages], tools=list(tools) if tools else None,
                documents=None, add_generation_prompt=answer, bos_token=begin, eos_token=end,
                strftime_now=lambda form: datetime.now().strftime(form),
            )  # fmt: skip

        if any(isinstance(message.get("content"), list) for message in messages):
            messages = messages if _takes_parts(write) else [_joined(message) for message in messages]
        return write(messages)
    except Exception as error:  # a template can fail as any program can
        why = " ".join(str(error).split()) or type(error).__name__
        raise ModelFileError(f"{template.path}: its chat template fails for {name}: {why}") from None


def rendered_tokens(model: Model, text: str, name: str) -> NDArray[np.int32]:
    """Cut what a template has written into the model's tokens; special ones are taken as such.

    name: of the conversation, for messages.
    Returns (n,) int32. Raises TextError: it is not UTF-8, or has characters without tokens.
    """
    begin, _ = model.vocabulary.begin_and_end()
    ends = not (begin and text.startswith(begin))  # the template writes what begins texts, if it wants it
    tokens = model.vocabulary.tokenize(utf8(text, name), ends=ends, special=True)
    return model.vocabulary.continuing(tokens) if ends else tokens


def _takes_parts(write: Render) -> bool:
    """Find out whether a template writes the texts of parts, and not the list that they are in."""
    content = [{"type": "text", "text": NEEDLE}]
    try:
        text = write([{"role": "user", "content": content}])
    except Exception:
        return False
    return NEEDLE in text and str(content) not in text and json.dumps(content) not in text


def _joined(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": "".join(part["text"] for part in content)}
