"""Records of what a draft would say along its target's texts, from which any policy can be replayed.

A record has, for every token of texts that the target wrote, the draft's own distribution there. No drafting
loop is needed for that. As long as drafted tokens are accepted, the draft has read the target's text, so its
distribution is the recorded one. A drafted token that differs from the target's is refused; the round ends,
and the draft goes on from the target's text. Tokens that were drafted behind a refused one are the only ones
that the record does not know. They are never part of the text, and what stands in for them, the distribution
along the target's text, decides only how many more of them are drafted before the round ends.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import ConfigError
from pyquant.files.json import parse_json
from pyquant.generation.speculative.record.target_texts import TextSource, read_header, require_same

SCHEMA = "pyquant.draft_record/5"
DIGITS = 7  # of numbers in the file: as many as float32 has


@dataclass(frozen=True, kw_only=True)
class Source(TextSource):
    """What a record is of; two records of the same source are equal but for rounding.

    Attributes
    ----------
    draft : str
        Name of the model's file, or "ngram".
    draft_sha256 : str
        Of the files, all shards; or "ngram".
    """

    draft: str
    draft_sha256: str

    def of_texts(self) -> TextSource:
        """Return what the target's texts are of, which no draft changes."""
        return TextSource(**{field.name: getattr(self, field.name) for field in fields(TextSource)})


@dataclass(frozen=True)
class Along:
    """What a draft says along a text of its target; all arrays (n,), for each token of the text.

    Attributes
    ----------
    prompt, sample : int
        Which of the prompts, and which of its texts.
    ended : bool
        Whether its last token is one that ends a text.
    max_tokens : int
        Tokens that it was allowed to have.
    entropy : float64
        Of the draft's distribution at temperature 1, in nats.
    top_p : float64
        Probability of the most likely token there; 0 where n-grams have nothing to say.
    token_p : float64
        Probability there of the token that is drafted: the most likely one, or where the target draws, the
        one that the text has.
    accepted : float64
        Chance that the drafted token is accepted, given the text. Greedy: 1 if the draft's most likely token
        is the text's, else 0. Drawn: min(1, q / p) of the text's token, q being its probability in the draft
        and p in the target. A token of the text is an accepted one with this chance, and otherwise one that
        was drawn in place of a refused one: min(p, q) of p.
    fresh : int or None
        Tokens before the first that ends 6 tokens which the prompt or the text has had in this order; None
        for all. Behind it a text may go round in circles, and circles are drafted for free.
    """

    prompt: int
    sample: int
    ended: bool
    max_tokens: int
    entropy: NDArray[np.float64]
    top_p: NDArray[np.float64]
    token_p: NDArray[np.float64]
    accepted: NDArray[np.float64]
    fresh: int | None = None

    def before_repetition(self) -> Along:
        """Return the text up to its first repetition."""
        if self.fresh is None or self.fresh >= len(self):
            return self
        cut = {name: getattr(self, name)[: self.fresh] for name in ARRAYS}
        return Along(self.prompt, self.sample, False, self.max_tokens, **cut)

    def __len__(self) -> int:
        return len(self.entropy)

    def to_line(self) -> str:
        """Return it as a line of the file."""
        values = asdict(self)
        lists = {name: [float(f"{x:.{DIGITS}g}") for x in values[name]] for name in ARRAYS}
        return json.dumps({name: values[name] for name in FACTS} | lists) + "\n"


FACTS = ("prompt", "sample", "ended", "max_tokens", "fresh")
ARRAYS = tuple(field.name for field in fields(Along) if field.name not in FACTS)


@dataclass(frozen=True)
class Record:
    """A source, and what was recorded of it, in the order of prompts and their samples."""

    source: Source
    texts: list[Along]

    @property
    def n_tokens(self) -> int:
        """Tokens of all texts."""
        return sum(map(len, self.texts))

    @property
    def n_drafted(self) -> int:
        """Places where something is drafted: n-grams have nothing to say at most."""
        return int((self.joined("top_p") > 0).sum())

    @property
    def acceptance(self) -> float | None:
        """Return the share of drafted tokens that is accepted; None where nothing is drafted."""
        return self.mean("accepted")

    def mean(self, name: str) -> float | None:
        """Return the mean of one of the arrays where something is drafted; None where nothing is."""
        drafted = self.joined("top_p") > 0
        return float(self.joined(name)[drafted].mean()) if drafted.any() else None

    def before_repetitions(self) -> Record:
        """Return the texts up to their first repetitions."""
        return Record(self.source, [text.before_repetition() for text in self.texts])

    def joined(self, name: str) -> NDArray[np.float64]:
        """Return one of the arrays of all texts, one after the other."""
        return np.concatenate([getattr(text, name) for text in self.texts])


def read_record(path: Path) -> Record:
    """Read a record that is complete.

    Raises
    ------
    ConfigError
        It cannot be read, is of another version, or a line is something else; its number is named.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as a record: {error}") from None
    source = read_source(lines[0] if lines else "", path)
    texts = [read_line(line, path, n) for n, line in enumerate(lines[1:], start=2)]
    if not any(len(text) for text in texts):
        raise ConfigError(f"{path}: has no texts; record it anew")
    return Record(source, sorted(texts, key=lambda text: (text.prompt, text.sample)))


def read_record_of(path: Path, source: Source) -> Record:
    """Read a record that has to be of these models, prompts and settings.

    Raises
    ------
    ConfigError
        Something differs; its name is said.
    """
    record = read_record(path)
    require_same(path, record.source, source)
    return record


def read_source(line: str, path: Path) -> Source:
    """Read the first line of a record. Raises ConfigError."""
    return read_header(line, path, SCHEMA, Source, "pyquant draft record")


def read_line(line: str, path: Path, number: int) -> Along:
    """Read another line of a record. Raises ConfigError."""
    try:
        entry: Any = parse_json(line)
        arrays = {name: np.array(entry[name], np.float64) for name in ARRAYS}
        fresh = entry["fresh"]
        text = Along(
            int(entry["prompt"]),
            int(entry["sample"]),
            bool(entry["ended"]),
            int(entry["max_tokens"]),
            **arrays,
            fresh=None if fresh is None else max(int(fresh), 0),
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        raise ConfigError(f"{path}:{number}: is damaged; record it anew") from None
    shapes = {array.shape for array in arrays.values()}
    sound = all(np.isfinite(array).all() and (array >= 0).all() for array in arrays.values())
    if len(shapes) != 1 or len(shapes.pop()) != 1 or not sound or (arrays["accepted"] > 1).any():
        raise ConfigError(f"{path}:{number}: is damaged; record it anew")
    return text
