"""Read what commands printed with --json: results of compare, accuracy and speed, of whatever origin."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, NonNegativeInt, PositiveInt, ValidationError

from pyquant.errors import ConfigError, said_by_system
from pyquant.evaluate.accuracy import SCHEMA as ACCURACY
from pyquant.evaluate.comparison import SCHEMA as COMPARE
from pyquant.evaluate.speed import SCHEMA as SPEED
from pyquant.files.json import read_json

MOST_MODELS = 1000  # of a result
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Ratio = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[FiniteFloat, Field(gt=0, le=1e300)]
Nats = Annotated[FiniteFloat, Field(ge=-1, le=1e6)]
Error = Annotated[FiniteFloat, Field(ge=0, le=1e300)]


class _Part(BaseModel):
    """A part of a result, of which a card needs these fields and passes over others."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class MadeBy(_Part):
    """What made a result; empty where it does not say."""

    pyquant: str = ""
    cpu: str = ""


class _Printed(_Part):
    """What a command prints with --json. made_of: fingerprints of models' files, by their paths."""

    made_by: MadeBy = MadeBy()
    made_of: dict[str, Sha256] = {}


class KldOfTokens(_Part):
    """KLD per token, in nats."""

    mean: Nats
    error: Error
    max: Nats
    percentiles: dict[str, Nats]


class SameTop(_Part):
    """Share of tokens."""

    share: Ratio
    error: Error


class Base(_Part):
    """The model that others are measured from."""

    model: str
    perplexity: Positive
    perplexity_error: Error
    size: PositiveInt | None = None  # bytes of its files, where the result says them


class _Cached(_Part):
    """A model with a cache. file: its path, where `model` names types of the cache too."""

    model: str
    file: str | None = None
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"

    @property
    def path(self) -> str:
        """The model's file."""
        return self.file or self.model

    @property
    def cache_types(self) -> str:
        """The cache's types; empty for f16."""
        types = self.cache_type_k, self.cache_type_v
        return "" if types == ("f16", "f16") else "KV {}/{}".format(*types)


class Candidate(Base, _Cached):
    """A model beside its base."""

    ratio: Positive
    ratio_error: Error
    kld: KldOfTokens
    same_top: SameTop


class Share(_Part):
    """A part of a mean KLD, in nats."""

    kld: Nats
    error: Error


class Shares(_Cached):
    """What the KLD of a model comes of."""

    weights: Share
    activations: Share
    cache: Share | None
    total: Share


class Compared(_Part):
    """Models beside a base on one text. name: what the text is called. kind: as `Comparison` has it."""

    name: str = ""
    kind: Literal["text", "chat", "bundled", "answers"] = "text"
    text: str
    text_sha256: Sha256
    n_ctx: PositiveInt
    n_chunks: PositiveInt
    n_tokens: PositiveInt
    base: Base
    candidates: Annotated[list[Candidate], Field(min_length=1, max_length=MOST_MODELS)]
    shares: Annotated[list[Shares], Field(max_length=MOST_MODELS)] = []


class AnsweredBy(_Part):
    """One model's accuracy."""

    model: str
    accuracy: Ratio
    error: Error


class BesideBase(AnsweredBy):
    """The same beside its base; p: of McNemar's test."""

    right_to_wrong: NonNegativeInt
    wrong_to_right: NonNegativeInt
    p: Ratio


class Questions(_Part):
    """A file of questions, and models' answers."""

    format: str
    file: str
    sha256: Sha256
    n_in_file: PositiveInt
    n_questions: PositiveInt
    chance: Ratio
    base: AnsweredBy
    candidates: Annotated[list[BesideBase], Field(max_length=MOST_MODELS)]


class Rate(_Part):
    """Tokens per second: median, least, most, and of each round."""

    tokens_per_second: Positive
    low: Positive
    high: Positive
    rounds: Annotated[list[Positive], Field(min_length=1)]


class Timed(_Part):
    """One model's speed."""

    model: str
    prompt: Rate
    generation: Rate
    n_bytes: PositiveInt | None = None


class Speed(_Printed):
    """Models' speeds on one machine."""

    n_prompt: PositiveInt
    n_generate: PositiveInt
    n_threads: PositiveInt
    models: Annotated[list[Timed], Field(min_length=1, max_length=MOST_MODELS)]


class _Answers(_Printed):
    files: Annotated[list[Questions], Field(min_length=1)]


class _OneText(Compared, _Printed):
    pass


class _Texts(_Printed):
    texts: Annotated[list[Compared], Field(min_length=1)]


@dataclass(frozen=True)
class Results:
    """All results of a card.

    together: texts, by what one command printed. versions: of pyquant. fingerprints: of models' files as they
    were measured, by paths.
    """

    together: list[list[Compared]]
    asked: list[Questions]
    speeds: list[Speed]
    versions: list[str]
    fingerprints: set[tuple[str, str]]

    @property
    def compared(self) -> list[Compared]:
        """What was measured on each text."""
        return [one for texts in self.together for one in texts]

    @property
    def bases(self) -> list[str]:
        """Paths of the models that others are measured from, each once."""
        return list(
            dict.fromkeys(
                [one.base.model for one in self.compared] + [asked.base.model for asked in self.asked]
            )
        )

    @property
    def sizes(self) -> list[tuple[str, int]]:
        """Bytes of models' files as they were measured, by their paths."""
        sizes = [(one.base.model, one.base.size) for one in self.compared]
        sizes += [(own.path, own.size) for one in self.compared for own in one.candidates]
        sizes += [(own.model, own.n_bytes) for one in self.speeds for own in one.models]
        return [(path, n_bytes) for path, n_bytes in sizes if n_bytes is not None]

    @property
    def models(self) -> list[str]:
        """Paths of all models, the bases first, each once."""
        paths = [*self.bases, *(own.path for one in self.compared for own in one.candidates)]
        paths += [own.model for one in self.asked for own in one.candidates]
        paths += [own.model for one in self.speeds for own in one.models]
        return list(dict.fromkeys(paths))


def read_results(paths: Sequence[str | os.PathLike[str]]) -> Results:
    """Read results that were printed by compare, accuracy and speed with --json.

    Raises ConfigError: a file cannot be read or holds something else, or there is no base.
    """
    results = Results([], [], [], [], set())
    for path in map(Path, paths):
        _add(path, results)
    if not results.bases:
        raise ConfigError("card: give a result of `pyquant compare --json` or `pyquant accuracy --json`")
    return results


def _add(path: Path, results: Results) -> None:
    content = _content(path)
    schema = content["schema"]
    printed: _Printed
    try:
        if schema == COMPARE and "texts" in content:
            printed = _Texts.model_validate(content)
            results.together.append(printed.texts)
        elif schema == COMPARE:
            printed = _OneText.model_validate(content)
            results.together.append([printed])
        elif schema == ACCURACY:
            printed = _Answers.model_validate(content)
            results.asked.extend(printed.files)
        elif schema == SPEED:
            printed = Speed.model_validate(content)
            results.speeds.append(printed)
        else:
            raise ConfigError(
                f"{path}: has the schema {str(schema)[:60]!r}; a card is made of {COMPARE}, {ACCURACY} "
                f"and {SPEED}, which those commands print with --json"
            )
    except ValidationError as error:
        raise ConfigError(f"{path}: {_wrong(error)}; print it anew with --json") from None
    results.fingerprints.update(printed.made_of.items())
    version = printed.made_by.pyquant
    if version and version not in results.versions:
        results.versions.append(version)


def _wrong(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))[:100]
    if first["type"] == "missing":
        return f"{place!r} is missing"
    message = " ".join(first["msg"].split())
    return f"{place!r}: {message[0].lower()}{message[1:]}"


def _content(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
    except OSError as error:
        raise ConfigError(said_by_system(error, path)) from None
    except ValueError as error:
        raise ConfigError(
            f"{path}: cannot be read as a result that a command printed with --json: {error}"
        ) from None
    if not isinstance(content, dict) or "schema" not in content:
        raise ConfigError(f"{path}: is no result of a command with --json: it has no schema")
    return content
