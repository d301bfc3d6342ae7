"""Conversations to evaluate models on: in the base's chat template, with the answers' tokens scored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import TextError
from pyquant.evaluate.passages import Passage
from pyquant.files.text import text_bytes
from pyquant.llama.chat_template import Message, render, rendered_tokens
from pyquant.llama.messages import check_messages, json_lines
from pyquant.llama.model import Model

ANSWERS = "assistant"  # the role that is scored


@dataclass(frozen=True)
class Conversation:
    """Messages that end with an answer, or have some. place: FILE:LINE, for messages of errors."""

    messages: Sequence[Message]
    place: str


@dataclass(frozen=True)
class Rendered:
    """A conversation as a template writes it, and as a base's tokens."""

    place: str
    text: str
    passage: Passage

    def cut(self, model: Model) -> NDArray[np.int32]:
        """Cut it into another model's tokens, (n,) int32. Raises TextError."""
        return rendered_tokens(model, self.text, self.place)


@dataclass(frozen=True)
class Chat:
    """Conversations, and what results call them.

    source: the file that they are from. kind: chat, or answers that the base wrote.
    """

    name: str
    source: str
    sha256: str
    conversations: Sequence[Conversation]
    kind: str = "chat"

    def to_jsonl(self) -> bytes:
        """Return a file's content that `read_chat` reads as this."""
        return json_bytes(self.conversations)

    def rendered(self, model: Model) -> list[Rendered]:
        """Write all of them in a model's chat template.

        Raises
        ------
        ModelFileError
            There is no template, or it fails.
        TextError
        """
        return [_rendered(model, conversation) for conversation in self.conversations]


def json_bytes(conversations: Sequence[Conversation]) -> bytes:
    """Write conversations as a JSON object in each line."""
    return "".join(json.dumps({"messages": one.messages}) + "\n" for one in conversations).encode()


def read_chat(path: Path, name: str) -> Chat:
    """Read conversations from a file with a JSON object in each line: `messages`, a list of role and content.

    One line that is something else is reason to refuse the file. Raises TextError, with the line's number.
    """
    content = text_bytes(path)
    conversations = [_conversation(entry, place) for place, entry in json_lines(content, path)]
    if not conversations:
        raise TextError(f"{path}: has no conversations")
    return Chat(name, str(path), hashlib.sha256(content).hexdigest(), conversations)


def _conversation(entry: dict[str, object], place: str) -> Conversation:
    messages = entry.get("messages")
    if not isinstance(messages, list) or not messages:
        raise TextError(f'{place}: expected "messages": a list of role and content')
    check_messages(messages, place)
    if not any(message["role"] == ANSWERS for message in messages):
        raise TextError(f"{place}: no message has the role {ANSWERS}, whose tokens are scored")
    return Conversation(messages, place)


def _rendered(model: Model, conversation: Conversation) -> Rendered:
    messages, place = conversation.messages, conversation.place
    text = render(model, messages, place, answer=False)
    tokens = rendered_tokens(model, text, place)
    scored = np.zeros(len(tokens), bool)
    for i, message in enumerate(messages):
        if message["role"] == ANSWERS:
            begin, end = (
                _n_common(tokens, rendered_tokens(model, part, place))
                for part in _parts(model, conversation, text, i)
            )
            scored[begin : _turn_end(model, tokens, begin, end)] = True
    scored[:1] = False  # there is nothing before it
    if not scored.any():
        raise TextError(f"{place}: has answers without a token")
    return Rendered(place, text, Passage(tokens, scored))


def _parts(model: Model, conversation: Conversation, text: str, i: int) -> tuple[str, str]:
    """Return a conversation up to where its i-th message, an answer, is asked for, and up to its end.

    text: all of it. The answer begins where the first part and the whole differ: a template may ask for an
    answer by other words than it puts before one that is there, such as a block of thoughts.
    """
    messages, place = conversation.messages, conversation.place
    if i == 0:
        return "", render(model, messages[:1], place, answer=False)
    if not text.startswith(render(model, messages[:i], place, answer=False)):
        raise TextError(
            f"{place}: the chat template of {model.path} writes what is before message {i + 1} otherwise "
            f"where messages follow; give each answer a line that ends with it"
        )
    return render(model, messages[:i], place), render(model, messages[: i + 1], place, answer=False)


def _n_common(tokens: NDArray[np.int32], part: NDArray[np.int32]) -> int:
    """Count the tokens that both begin with."""
    n = min(len(tokens), len(part))
    different = np.flatnonzero(tokens[:n] != part[:n])
    return int(different[0]) if len(different) else n


def _turn_end(model: Model, tokens: NDArray[np.int32], begin: int, end: int) -> int:
    """Return where an answer ends: behind the token that ends the turn, which a model generates too."""
    ends = np.flatnonzero(np.isin(tokens[begin:end], model.vocabulary.end_tokens()))
    return begin + int(ends[0]) + 1 if len(ends) else end
