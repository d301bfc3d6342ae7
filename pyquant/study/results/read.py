"""Results of a study, as its report, figures and tables read them."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyquant.errors import StudyError
from pyquant.study.items import Items, read_items
from pyquant.study.store import Store

Result = dict[str, Any]
ABOUT_ROW = ("label", "alike", "mode", "knows")  # all other keys of a row in study.json are metrics


@dataclass(frozen=True)
class Measurement:
    """The result of one run, and where and when it was made."""

    key: str
    result: Result  # as the run's file has them
    provenance: dict[str, Any]
    items_file: Path | None  # file with the results per item, or None

    def items(self) -> Items | None:
        """Read the results per item, or return None where there are none. Raises StudyError."""
        return read_items(self.items_file) if self.items_file else None


@dataclass(frozen=True)
class RowResults:
    """Measurements of a model through a quantizer.

    Attributes
    ----------
    label
        Name of the quantizer.
    alike
        The same name without what the quantizer knows of inputs.
    mode
        Name of the mode; None for the unquantized model.
    knows
        What it knows of inputs, as `Quantizer.knows` has it.
    keys
        Keys of its runs by metric: one, or one for each text; None where it is not measured on that.
    measurements
        The same runs' results; None where there is none yet.
    """

    label: str
    alike: str
    mode: str | None
    knows: dict[str, str] | None
    keys: dict[str, list[str | None]]
    measurements: dict[str, list[Measurement | None]]

    def measurement(self, metric: str, text: int = 0) -> Measurement | None:
        """Return the result of a metric with its provenance, or None where there is none.

        text: index of the text, for metrics that are measured on texts.
        """
        measured = self.measurements.get(metric, [])
        return measured[text] if len(measured) > text else None

    def result(self, metric: str, text: int = 0) -> Result | None:
        """Return the result of a metric alone; see `measurement`."""
        measured = self.measurement(metric, text)
        return measured.result if measured else None


@dataclass(frozen=True)
class ModelResults:
    """Measurements of a model and its quantizers."""

    name: str
    sha256: str
    texts: list[str]
    rows: list[RowResults]  # the unquantized model first, then the quantizers in the study's order

    def row(self, label: str) -> RowResults:
        """Return the row of a quantizer. Raises StudyError: the study has no such quantizer."""
        for row in self.rows:
            if row.label == label:
                return row
        known = ", ".join(row.label for row in self.rows)
        raise StudyError(f"the study has no quantizer {label!r}; it has {known}")


@dataclass(frozen=True)
class Results:
    """Everything that the last `study run` asked for, as far as it is done.

    Attributes
    ----------
    folder
        The results folder.
    title, question, command, ctx, chunks
        As the study has them.
    texts
        Name and SHA-256 of each, and types of the cache; those with a cache of F16 first.
    models
        In the study's order.
    """

    folder: Path
    title: str
    question: str
    command: str
    ctx: int
    chunks: int | None
    texts: list[dict[str, Any]]
    models: list[ModelResults]

    @property
    def complete(self) -> bool:
        """Say whether every run that was asked for is there."""
        return all(
            measured is not None or key is None
            for model in self.models
            for row in model.rows
            for name, keys in row.keys.items()
            for key, measured in zip(keys, row.measurements[name])
        )

    @property
    def provenance(self) -> dict[str, dict[str, Any]]:
        """Place and time of each run, by its key."""
        return {
            measured.key: measured.provenance
            for model in self.models
            for row in model.rows
            for of_metric in row.measurements.values()
            for measured in of_metric
            if measured is not None
        }


@contextmanager
def understood(results: str | os.PathLike[str]) -> Iterator[None]:
    """Refuse a results folder whose files do not say what a metric of this version gives.

    results: the folder, to be named.
    Raises StudyError: something was looked up in a result that is not in it, or is of another sort.
    """
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        what = f"{type(error).__name__}: {reprlib.repr(str(error))}"
        raise StudyError(
            f"{os.fspath(results)}: its results are not what this version of pyquant writes ({what}); "
            "`pyquant study validate` looks for changed ones"
        ) from error


def read_results(store: Store) -> Results:
    """Read what the last `study run` asked for, as far as it is done.

    Raises StudyError: there is no study in the folder, or one of another version.
    """
    with understood(store.folder):
        return _read_results(store)


def _read_results(store: Store) -> Results:
    study = store.study()
    names = [_name(text["name"]) for text in study["texts"]]
    measured: dict[str, Measurement | None] = {}

    def measurement(key: str | None) -> Measurement | None:
        if key is None:
            return None
        if key not in measured:  # quantizers share prerequisites
            measured[key] = _read(store, key)
        return measured[key]

    def row(written: dict[str, Any]) -> RowResults:
        listed = {name: written[name] for name in written if name not in ABOUT_ROW}
        keys = {name: key if isinstance(key, list) else [key] for name, key in listed.items()}
        return RowResults(
            label=_name(written["label"]),
            alike=_name(written["alike"]),
            mode=None if written["mode"] is None else _name(written["mode"]),
            knows=written["knows"],
            keys=keys,
            measurements={name: [measurement(key) for key in keys[name]] for name in keys},
        )

    return Results(
        folder=store.folder,
        **{name: study[name] for name in ("title", "question", "command", "ctx", "chunks", "texts")},
        models=[
            ModelResults(
                _name(model["name"]),
                _name(model["sha256"]),
                names,
                [row(written) for written in model["rows"]],
            )
            for model in study["models"]
        ],
    )


def _name(value: Any) -> str:
    """Refuse a name that no other tool could take. Raises TypeError, UnicodeEncodeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no name")
    value.encode()
    return value


def _read(store: Store, key: str) -> Measurement | None:
    if not store.has(key):
        return None
    record = store.read(key)
    return Measurement(key, record["result"], record["provenance"], store.items_path(record))
