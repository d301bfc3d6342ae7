"""What a study has found, as its report, figures and tables read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pyquant.errors import StudyError
from pyquant.inspect.histogram import CodeStatistics
from pyquant.models.codebook import CODEBOOKS, Codebook
from pyquant.models.tensor_type import TensorType as Type
from pyquant.study.store import KINDS, PREREQUISITES, Store


@dataclass(frozen=True)
class RowResults:
    """A model through a quantizer. alike: its name without what it knows of inputs; knows: what that is,
    as `Quantizer.knows` has it. codes, size, speed: `result` of their run's file, None where there is
    none (yet). quality: of each text. keys: the files' names, by kind; of quality a list."""

    label: str
    alike: str
    mode: str | None
    knows: dict[str, str] | None
    codes: dict[str, Any] | None
    size: dict[str, Any] | None
    speed: dict[str, Any] | None
    quality: list[dict[str, Any] | None]
    keys: dict[str, Any]


@dataclass(frozen=True)
class ModelResults:
    """rows: first the model itself, then its quantizers in the study's order."""

    name: str
    sha256: str
    texts: list[str]
    rows: list[RowResults]

    def row(self, label: str) -> RowResults:
        """Raises StudyError if the study has no such quantizer."""
        for row in self.rows:
            if row.label == label:
                return row
        known = ", ".join(row.label for row in self.rows)
        raise StudyError(f"the study has no quantizer {label!r}; it has {known}")


@dataclass(frozen=True)
class Results:
    """Everything that the last `study run` asked for, as far as it is done."""

    title: str
    question: str
    command: str
    ctx: int
    chunks: int | None
    texts: list[dict[str, str]]
    models: list[ModelResults]
    provenance: dict[str, dict[str, Any]]  # by key

    @property
    def complete(self) -> bool:
        """Whether every run that was asked for is there."""
        wanted = [key for model in self.models for row in model.rows for key in every_key(row.keys)]
        return all(key in self.provenance for key in wanted)


def every_key(keys: dict[str, Any]) -> list[str]:
    """Of all kinds of runs of a row."""
    return [key for kind in KINDS if kind in keys for key in _listed(keys[kind])]


def _listed(keys: str | list[str]) -> list[str]:
    return keys if isinstance(keys, list) else [keys]


def read_results(store: Store) -> Results:
    """Raises StudyError if there is no study, or one of another version."""
    study = store.study()
    texts = study["texts"]
    provenance: dict[str, dict[str, Any]] = {}

    def result(key: str | None) -> dict[str, Any] | None:
        if key is None or not store.has(key):
            return None
        record = store.read(key)
        provenance[key] = record["provenance"]
        return record["result"]

    def row(keys: dict[str, Any]) -> RowResults:
        for kind in PREREQUISITES:
            result(keys.get(kind))  # for its provenance
        return RowResults(
            label=keys["label"],
            alike=keys["alike"],
            mode=keys["mode"],
            knows=keys["knows"],
            **{kind: result(keys.get(kind)) for kind in ("codes", "size", "speed")},
            quality=[result(key) for key in keys["quality"]],
            keys={kind: keys[kind] for kind in KINDS if kind in keys},
        )

    names = [text["name"] for text in texts]
    models = [
        ModelResults(model["name"], model["sha256"], names, [row(keys) for keys in model["rows"]])
        for model in study["models"]
    ]
    return Results(
        title=study["title"],
        question=study["question"],
        command=study["command"],
        ctx=study["ctx"],
        chunks=study["chunks"],
        texts=texts,
        models=models,
        provenance=provenance,
    )


def code_statistics(row: RowResults) -> CodeStatistics:
    """The codes of a quantizer's own type; a mixture has others too. Raises StudyError."""
    if row.codes is None:
        raise StudyError(f"the codes of {row.label} have not been counted; `pyquant study run` does it")
    wanted = {"q4": "Q4_0", "q8": "Q8_0"}.get((row.mode or "")[:2], "")
    wanted += " table" if row.mode == "q8_table" else ""
    totals = {total["type"]: total for total in row.codes["totals"]}
    return _statistics(totals.get(wanted) or max(totals.values(), key=lambda total: total["n_codes"]))


def _statistics(total: dict[str, Any]) -> CodeStatistics:
    codes = total["codes"]
    values = np.array([code["value"] for code in codes], np.int8)
    if total["type"].endswith(" table"):
        book = Codebook.of_table(values)
    elif total["type"] == Type.Q4_T.name:
        book = Codebook.of_q4_t(values)
    else:
        book = CODEBOOKS[Type[total["type"]]]
    counts = np.zeros(len(book.values), np.uint64)
    counts[np.searchsorted(book.codes, [code["code"] for code in codes])] = [code["count"] for code in codes]
    return CodeStatistics(total["name"], book, counts, np.array(total["zero_runs"]["counts"], np.uint64))
