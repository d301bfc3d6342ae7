"""A model that has a chat template, and conversations in a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from gguf import GGUFWriter

from tests.support.models import Model

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "{% if m.role == 'assistant' %}A: {{ m.content }}{{ eos_token }}{% else %}Q: {{ m.content }}\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}A: {% endif %}"
)


@dataclass(frozen=True)
class ChatModel(Model):
    """A generated model with a chat template."""

    template: str = TEMPLATE

    def add_to(self, writer: GGUFWriter) -> None:
        writer.add_chat_template(self.template)
        super().add_to(writer)


def turns(*contents: str) -> dict[str, list[dict[str, str]]]:
    """A conversation of a user and an assistant, in turns."""
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)]}


def write_chat(path: Path, *conversations: object) -> Path:
    """The conversations in a file, one in each line."""
    path.write_text("".join(json.dumps(conversation) + "\n" for conversation in conversations))
    return path
