"""Texts by name, as a base's tokens: plain texts in llama-perplexity's chunks, and conversations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import ModelFileError
from pyquant.evaluate.baseline import check_size, check_tokens
from pyquant.evaluate.chat import Chat, Rendered
from pyquant.evaluate.passages import Passage
from pyquant.files.text import NamedText
from pyquant.llama.chunks import BATCH, Chunks, cut
from pyquant.llama.model import Model

Named = NamedText | Chat


class Sample(ABC):
    """A named text as the base's tokens, in chunks.

    Attributes
    ----------
    name, kind, source, sha256 : str
        What results call it, what it is (`Comparison`), the file that it is from, and its hash.
    n_ctx, n_chunks : int
        Tokens of the longest chunk, and how many chunks there are.
    """

    name: str
    kind: str
    source: str
    sha256: str
    n_ctx: int
    n_chunks: int

    @abstractmethod
    def check(self, base: Model, model: Model) -> None:
        """Refuse a model that would be given other tokens than the base. Raises ModelFileError."""

    @abstractmethod
    def passages(self, base: Model) -> list[Passage]:
        """Return its chunks with the tokens that are scored."""

    @property
    def even(self) -> Chunks | None:
        """Its chunks, if they are of llama-perplexity's kind and a batch holds one; None for others."""
        return None

    def counted(self, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say which scored tokens statistics are of. positions, result: (n,)."""
        return np.ones(len(positions), bool)


class PlainSample(Sample):
    """A text in chunks of n_ctx tokens.

    Statistics are of the second half of each, as llama-perplexity's. every_position: score the first half
    too, to see where in the context KLD grows.
    """

    def __init__(self, named: NamedText, chunks: Chunks, *, every_position: bool) -> None:
        self._text, self._chunks, self._every_position = named.text, chunks, every_position
        self.name, self.kind = named.name, named.kind
        self.source, self.sha256 = str(named.text.path), named.text.sha256
        self.n_ctx, self.n_chunks = chunks.n_ctx, chunks.n_chunks

    def check(self, base: Model, model: Model) -> None:
        check_tokens(base, model, self._chunks, self._text)

    def passages(self, base: Model) -> list[Passage]:
        positions = np.arange(self.n_ctx)
        scored = positions > 0 if self._every_position else self.counted(positions)
        return [Passage(tokens, scored) for tokens in self._chunks.given_to(base)]

    @property
    def even(self) -> Chunks | None:
        return None if self._every_position or self.n_ctx > BATCH else self._chunks

    def counted(self, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        return positions > self.n_ctx // 2


class ChatSample(Sample):
    """Conversations in the base's chat template, each a chunk; the answers are scored."""

    def __init__(self, chat: Chat, rendered: Sequence[Rendered]) -> None:
        self._rendered = rendered
        self.name, self.kind, self.source, self.sha256 = chat.name, chat.kind, chat.source, chat.sha256
        self.n_ctx, self.n_chunks = max(len(one.passage.tokens) for one in rendered), len(rendered)

    def check(self, base: Model, model: Model) -> None:
        check_size(base, model)
        for one in self._rendered:
            if not np.array_equal(one.cut(model), one.passage.tokens):
                raise ModelFileError(
                    f"{model.path}: its tokenizer cuts {one.place} otherwise than that of {base.path}"
                )

    def passages(self, base: Model) -> list[Passage]:
        return [one.passage for one in self._rendered]


def prepare(
    base: Model, named: Named, *, n_ctx: int, n_chunks: int | None, every_position: bool = False
) -> Sample:
    """Cut a text into a base's tokens. n_ctx is that of plain texts: a conversation is as long as it is.

    Raises
    ------
    TextError
        It is too short, or a conversation has no answer.
    ModelFileError
        The base has no chat template, or it fails.
    ConfigError
    """
    if isinstance(named, Chat):
        return ChatSample(named, named.rendered(base)[:n_chunks])
    chunks = cut(base, named.text, n_ctx=n_ctx, n_chunks=n_chunks)
    return PlainSample(named, chunks, every_position=every_position)
