"""Texts that a study measures on: plain ones, conversations, and answers of the base."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pyquant.data.bundled_texts import BUNDLED_TEXTS
from pyquant.errors import ConfigError
from pyquant.evaluate.bundled import ANSWER_TOKENS, N_QUESTIONS, OWN_CHAT
from pyquant.evaluate.chat import read_chat
from pyquant.evaluate.samples import Named
from pyquant.files.text import NamedText, read_text
from pyquant.llama.cache_types import F16_CACHE, CacheTypes
from pyquant.study.sources import refuse_repeated, short_names

# What a text is: plain, conversations, or conversations whose answers each base writes, once.
Kind = Literal["text", "chat", "answers"]

OWN_CHAT_BYTES = 5 * N_QUESTIONS * ANSWER_TOKENS  # about

# A file, and its name if one was given.
NamedFile = tuple[str | None, Path]


@dataclass(frozen=True)
class StudyText:
    """A text, with the types of the cache that models run over it with.

    Attributes
    ----------
    name
        What results call it.
    kind
        What it is.
    path, sha256
        Its file and hash. Of an own chat, those of the file that a model's answers go to, or none yet.
    n_bytes
        Its length, of an own chat about.
    cache
        Types of keys and values.
    """

    name: str
    kind: Kind
    path: Path
    sha256: str
    n_bytes: int
    cache: CacheTypes = F16_CACHE

    @property
    def label(self) -> str:
        """Its name, and the cache's types unless they are F16's."""
        return self.name if self.cache == F16_CACHE else f"{self.name}, {self.cache}"

    @property
    def is_plain(self) -> bool:
        """Say whether it is a plain text, with a cache of F16."""
        return self.kind == "text" and self.cache == F16_CACHE

    @property
    def inputs(self) -> dict[str, Any]:
        """What results on it depend on, as JSON."""
        chat = {} if self.kind == "text" else {"chat": True}
        cache = {} if self.cache == F16_CACHE else {"cache": [self.cache.keys, self.cache.values]}
        return {"text": self.sha256, **chat, **cache}

    def to_json(self) -> dict[str, Any]:
        """Return what results say of it."""
        return {
            "name": self.label,
            "sha256": self.sha256 or None,
            "cache_type_k": self.cache.keys,
            "cache_type_v": self.cache.values,
        }


def read_named(path: Path, name: str, kind: Kind) -> Named:
    """Read a text for a comparison. Raises TextError."""
    return NamedText(name, read_text(path)) if kind == "text" else read_chat(path, name)


def study_texts(
    texts: Sequence[NamedFile], chats: Sequence[NamedFile], *, bundled: bool, caches: Sequence[CacheTypes]
) -> list[StudyText]:
    """Read the texts of a study, and cross them with caches: first all of them with a cache of F16.

    bundled: whether pyquant's texts and answers of each base are among them.
    Raises ConfigError: two have the same name or content, or a cache is there twice. TextError.
    """
    read = [*_read(texts, "text"), *_read(chats, "chat")]
    if bundled:
        read += _read([(text.name, text.path) for text in BUNDLED_TEXTS], "text")
        read.append(StudyText(OWN_CHAT, "answers", Path(), "", OWN_CHAT_BYTES))
    refuse_repeated([text for text in read if text.kind != "answers"], "text")
    names = [text.name for text in read]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"texts: two have the name {name!r}; name one otherwise")
    if len({F16_CACHE, *caches}) < 1 + len(caches):
        raise ConfigError("caches: one is given twice; f16 for both is always run")
    return [replace(text, cache=cache) for cache in (F16_CACHE, *caches) for text in read]


def _read(files: Sequence[NamedFile], kind: Kind) -> list[StudyText]:
    short = short_names([path.absolute() for _, path in files])
    read = []
    for (name, path), usual in zip(files, short):
        named = read_named(path, name or usual, kind)
        sha256 = named.text.sha256 if isinstance(named, NamedText) else named.sha256
        read.append(StudyText(named.name, kind, path, sha256, path.stat().st_size))
    return read
