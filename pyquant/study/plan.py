"""From a study to everything that is to be measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gguf import LlamaFileType

from pyquant import _core
from pyquant.errors import ConfigError
from pyquant.files.output_file import write_bytes
from pyquant.files.text import Text, read_text
from pyquant.models.model_file import ModelFile
from pyquant.quantize.to_pqz import SUFFIX
from pyquant.schemes import Mode
from pyquant.schemes.uniform import Uniform
from pyquant.study.config import StudyConfig
from pyquant.study.prerequisites import (
    Preparations,
    Prerequisite,
    quantizer_inputs,
    read_calibrations,
)
from pyquant.study.quantizer import FILES, Quantizer
from pyquant.study.store import Run, Store, digest

# Raised when what a kind of run writes or means changes: its results are made again, others stay.
METRICS = {"calibrate": 1, "learn": 1, "sensitivity": 1, "codes": 1, "size": 2, "quality": 1, "speed": 1}
COUNTABLE = (LlamaFileType.MOSTLY_Q4_0, LlamaFileType.MOSTLY_Q8_0, LlamaFileType.MOSTLY_IQ4_NL)


@dataclass(frozen=True)
class Source:
    """A model to quantize. name: of its file, and as much of the folder as tells it from the others.
    sha256: of its files."""

    path: Path
    name: str
    sha256: str
    n_weights: int


@dataclass(frozen=True)
class Row:
    """A model through a quantizer, or as it is (mode None), and what is measured of it.

    mode: with files in the place of what the study makes; needs: what makes them. quality: by the
    text's path. file: where the quantized model is, or will be.
    """

    source: Source
    quantizer: Quantizer | None
    mode: Mode | None
    label: str
    file: Path
    codes: Run | None
    size: Run | None
    speed: Run | None
    quality: dict[Path, Run]
    needs: list[Prerequisite]

    @property
    def uses(self) -> set[Path]:
        """Files that the study makes for it."""
        made = {file for need in self.needs for file in need.files}
        named = [getattr(self.mode, key, None) for key in FILES] if self.mode else []
        return made & {Path(file) for file in named if file}


@dataclass(frozen=True)
class Plan:
    """All runs of a study. rows: of each model first itself, then its quantizers."""

    config: StudyConfig
    texts: list[Text]
    rows: list[Row]

    @property
    def text_names(self) -> list[str]:
        """Of their files, and as much of the folders as tells them apart."""
        return _names([text.path.resolve() for text in self.texts])

    def runs(self) -> list[Run]:
        """Each once: quantizers share what they need."""
        every = [
            [*(need.run for need in row.needs), row.codes, row.size, *row.quality.values(), row.speed]
            for row in self.rows
        ]
        return list({run.key: run for runs in every for run in runs if run is not None}.values())

    def to_json(self) -> dict[str, Any]:
        """What the report and the figures need to find results and name them."""
        return {
            "title": self.config.title,
            "question": self.config.question,
            "ctx": self.config.ctx,
            "chunks": self.config.chunks,
            "texts": [
                {"name": name, "sha256": text.sha256} for name, text in zip(self.text_names, self.texts)
            ],
            "models": [
                {
                    "name": base.source.name,
                    "sha256": base.source.sha256,
                    "rows": [_row_json(row) for row in self.rows if row.source is base.source],
                }
                for base in self.rows
                if base.mode is None
            ],
        }


def _row_json(row: Row) -> dict[str, Any]:
    keys = {kind: run.key for kind in ("codes", "size", "speed") if (run := getattr(row, kind))}
    keys |= {need.run.kind: need.run.key for need in row.needs}
    one = row.quantizer
    return {
        "label": row.label,
        "alike": one.alike if one else row.label,
        "mode": one.mode.mode if one else None,
        "knows": one.knows if one else None,
        **keys,
        "quality": [run.key for run in row.quality.values()],
    }


def make_plan(config: StudyConfig, store: Store, hashing: Callable[[str], None] | None = None) -> Plan:
    """Reads texts and hashes models; refuses what cannot work before anything runs.

    hashing: told the name of each model that is read. Raises ConfigError, ModelFileError, TextError.
    """
    quantizers = config.quantizers()
    texts = [read_text(path) for path in config.texts] if "quality" in config.measure else []
    _refuse_repeated(texts, "text")
    calibrations = read_calibrations(config, quantizers)
    models = [ModelFile(path) for path in config.models]
    hashes = _Hashes(store.folder / "hashes.json", hashing)
    names = _names([model.path.resolve() for model in models])
    sources = [
        Source(model.path.resolve(), name, hashes.of(model), model.n_weights)
        for model, name in zip(models, names)
    ]
    _refuse_repeated(sources, "model")
    evaluation = {"n_ctx": config.ctx, "n_chunks": config.chunks}
    if any(one.storage.like is not None for one in quantizers):
        evaluation["text"] = read_text(config.texts[0]).sha256
    inputs = [quantizer_inputs(one, calibrations, evaluation) for one in quantizers]
    rows = []
    for source in sources:
        rows.append(_row(config, store, source, texts))
        preparations = Preparations(store, source.name, calibrations, partial(_inputs, source), config.ctx)
        for one, about in zip(quantizers, inputs):
            rows.append(_row(config, store, source, texts, one, about, *preparations.of(one)))
    return Plan(config, texts, rows)


def _names(paths: list[Path]) -> list[str]:
    for n_parts in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        names = ["/".join(path.parts[-n_parts:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _refuse_repeated(found: list[Any], what: str) -> None:
    seen: dict[str, Any] = {}
    for one in found:
        first = seen.setdefault(one.sha256, one)
        if first is not one:
            raise ConfigError(f"{one.path}: the same {what} as {first.path}")


def _inputs(source: Source, kind: str) -> dict[str, Any]:
    """What all runs of a kind depend on that are made of a model."""
    llama = _core.build_info()["llama_cpp_python"]
    return {"metrics": METRICS[kind], "llama_cpp_python": llama, "model": source.sha256}


def _row(
    config: StudyConfig,
    store: Store,
    source: Source,
    texts: list[Text],
    one: Quantizer | None = None,
    about: dict[str, Any] | None = None,
    mode: Mode | None = None,
    needs: Sequence[Prerequisite] = (),
) -> Row:
    base = {"model": source.sha256, "quantizer": about}
    names = {"model": source.name, "quantizer": one.label if one else None}

    def run(kind: str, **more: Any) -> Run | None:
        if kind not in config.measure:
            return None
        return Run(kind, _inputs(source, kind) | {"quantizer": about} | more, names)

    # The codes of mode uniform are none of the types' that are counted.
    counted = mode is not None and mode.file_type in COUNTABLE and not isinstance(mode, Uniform)
    ending = SUFFIX if one and one.storage.packed else ".gguf"
    quality = {
        text.path: replace(
            run("quality", text=text.sha256, n_ctx=config.ctx, n_chunks=config.chunks),
            names=names | {"text": text.path.name},
        )
        for text in texts
    }
    return Row(
        source=source,
        quantizer=one,
        mode=mode,
        label=one.label if one else "unquantized",
        file=store.models / f"{digest(base)[:16]}{ending}" if one else source.path,
        codes=run("codes") if counted else None,
        size=run("size"),
        speed=run("speed", **config.speed.model_dump()),
        quality=quality,
        needs=list(needs),
    )


class _Hashes:
    """Hashes of models that have not changed since they were last read."""

    def __init__(self, path: Path, hashing: Callable[[str], None] | None) -> None:
        self._path, self._hashing = path, hashing
        try:
            self._known = json.loads(path.read_text())
        except (OSError, ValueError):
            self._known = {}

    def of(self, model: ModelFile) -> str:
        stats = [path.stat() for path in model.paths]
        seen = [[stat.st_size, stat.st_mtime_ns, stat.st_ino] for stat in stats]
        name = str(model.path.resolve())
        if self._known.get(name, {}).get("seen") != seen:
            if self._hashing:
                self._hashing(model.path.name)
            self._known[name] = {"seen": seen, "sha256": model.sha256()}
            write_bytes(self._path, json.dumps(self._known).encode(), sources=[], force=True)
        return self._known[name]["sha256"]
