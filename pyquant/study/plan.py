"""List everything that a study measures."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyquant import _core
from pyquant.errors import ConfigError, ModelFileError
from pyquant.evaluate.bundled import NO_OWN_CHAT
from pyquant.files.text import read_text
from pyquant.llama.cache import head_lengths
from pyquant.llama.cache_types import F16_CACHE
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.pqz_file import PQZ_SUFFIX
from pyquant.schemes import Mode
from pyquant.study.config import StudyConfig
from pyquant.study.metric import Asked, Metric
from pyquant.study.metrics import MEASURABLE
from pyquant.study.prerequisites import Need, Preparations, quantizer_inputs, read_calibrations
from pyquant.study.quantizer import FILES, Quantizer
from pyquant.study.sources import Given, Hashing, Source, read_sources
from pyquant.study.store import Run, Store, digest
from pyquant.study.study_text import StudyText, study_texts

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Row:
    """A model through a quantizer, or as it is, and what is measured of it."""

    source: Source
    # None for the unquantized model. The mode has files in the place of what the study makes.
    quantizer: Quantizer | None
    mode: Mode | None
    label: str  # what people read
    file: Path  # where the quantized model is, or will be
    # by the metric's name and, for metrics of texts, the text
    runs: dict[tuple[str, StudyText | None], Run]
    needs: list[Need]  # what makes the files that the mode names; of a model itself, its answers

    @property
    def uses(self) -> set[Path]:
        """Files that the study makes for it."""
        made = {file for need in self.needs for file in need.files}
        named = [getattr(self.mode, key, None) for key in FILES] if self.mode else []
        return made & {Path(file) for file in named if file}

    def to_json(self, metrics: Sequence[Metric], texts: Sequence[StudyText]) -> dict[str, Any]:
        """Return how it is called, and the keys of its runs: one a metric, or for texts a list.

        In that, None stands for a text that the metric is not measured on.
        """
        keys: dict[str, Any] = {need.run.metric: need.run.key for need in self.needs}
        for metric in metrics:
            if metric.unit == "text":
                runs = [self.runs.get((metric.name, text)) for text in texts]
                keys[metric.name] = [run.key if run else None for run in runs]
            elif own := self.runs.get((metric.name, None)):
                keys[metric.name] = own.key
        return {
            "label": self.label,
            "alike": self.quantizer.alike if self.quantizer else self.label,
            "mode": self.quantizer.mode.mode if self.quantizer else None,
            "knows": self.quantizer.knows if self.quantizer else None,
            **keys,
        }


@dataclass(frozen=True)
class StudyPlan:
    """All runs of a study."""

    config: StudyConfig
    # its texts, crossed with caches; none where no metric is measured on texts
    texts: list[StudyText]
    rows: list[Row]  # of each model first itself, then its quantizers
    given: Given
    threads: int | None = None  # if they were given

    @property
    def asked(self) -> Asked:
        """Return what metrics may know of it."""
        settings = {
            metric.name: self.config.settings_of(metric.name) for metric in MEASURABLE if metric.settings
        }
        return Asked(self.config.ctx, self.config.chunks, self.texts, settings, self.threads)

    def texts_of(self, metric: Metric) -> Sequence[StudyText | None]:
        """Return the texts that a metric is measured on; None once where it needs none."""
        return [text for text in self.texts if metric.takes(text)] if metric.unit == "text" else [None]

    def runs(self) -> list[Run]:
        """List every run once: quantizers share what they need."""
        every = [run for row in self.rows for run in (*(need.run for need in row.needs), *row.runs.values())]
        return list({run.key: run for run in every}.values())

    def to_json(self) -> dict[str, Any]:
        """Return what the report and the figures need to find results and name them."""
        return {
            "title": self.config.title,
            "question": self.config.question,
            "ctx": self.config.ctx,
            "chunks": self.config.chunks,
            "texts": [text.to_json() for text in self.texts],
            "models": [
                {
                    "name": base.source.name,
                    "sha256": base.source.sha256,
                    "rows": [
                        row.to_json(self.config.metrics, self.texts)
                        for row in self.rows
                        if row.source is base.source
                    ],
                }
                for base in self.rows
                if base.mode is None
            ],
        }


def make_plan(
    config: StudyConfig, store: Store, hashing: Hashing | None = None, threads: int | None = None
) -> StudyPlan:
    """Read texts and hash models; refuse what cannot work before anything runs.

    hashing: told the name of each model that is read for its hash.
    threads: of each process, if they were given.
    Raises ConfigError, ModelFileError, TextError: something is wrong with the study, a model or a text.
    """
    quantizers = config.quantizers()
    given = Given(_files(config, quantizers))
    texts = _texts(config) if config.needs_texts else []
    calibrations = read_calibrations(config, quantizers)
    sources = read_sources(config.models, store.folder / "hashes.json", hashing)
    for source in sources:
        _check_texts(source, texts)
    if not any(source.has_chat_template for source in sources):
        texts = [text for text in texts if text.kind != "answers"]
    evaluation: dict[str, Any] = {"n_ctx": config.ctx, "n_chunks": config.chunks}
    if any(quantizer.needs_evaluation for quantizer in quantizers):
        evaluation["text"] = read_text(config.texts[0].path).sha256
    inputs = [quantizer_inputs(quantizer, calibrations, evaluation) for quantizer in quantizers]
    plan = StudyPlan(config, texts, [], given, threads)
    for source in sources:
        of_model = partial(_inputs, source)
        preparations = Preparations(store.calibration, source.name, calibrations, of_model, config.ctx)
        own_chat = preparations.own_chat() if source.has_chat_template else None
        plan.rows.append(_base_row(plan, source, own_chat))
        for quantizer, made_of in zip(quantizers, inputs):
            mode, needs = preparations.of(quantizer)
            if needs:
                made_of = made_of | {"needs": [need.run.key for need in needs]}
            ending = PQZ_SUFFIX if quantizer.pqz else ".gguf"
            name = digest({"model": source.sha256, "quantizer": made_of})[:16]
            file = store.models / f"{name}{ending}"
            row = Row(source, quantizer, mode, quantizer.label, file, {}, needs)
            plan.rows.append(replace(row, runs=_runs(plan, row, made_of, own_chat)))
    return plan


def _files(config: StudyConfig, quantizers: Sequence[Quantizer]) -> Iterator[Path]:
    yield from config.models
    yield from (file.path for file in (*config.texts, *config.chats))
    yield from (text for calibration in config.calibration for text in calibration.texts)
    for mode in (quantizer.mode for quantizer in quantizers):
        yield from (file for file in (*mode.files(), mode.source) if file)


def _texts(config: StudyConfig) -> list[StudyText]:
    texts, chats = ([(file.name, file.path) for file in files] for files in (config.texts, config.chats))
    return study_texts(texts, chats, bundled=config.bundled, caches=config.caches)


def _check_texts(source: Source, texts: Sequence[StudyText]) -> None:
    """Refuse what a model cannot be run with, before anything is made; warn of texts that it has none of.

    Raises ModelFileError, ConfigError.
    """
    kinds = set() if source.has_chat_template else {text.kind for text in texts}
    if "chat" in kinds:
        raise ModelFileError(f"{source.path}: has no chat template, which `chats` need; leave one out")
    if "answers" in kinds:
        logger.warning(NO_OWN_CHAT, source.path)
    caches = dict.fromkeys(text.cache for text in texts if text.cache != F16_CACHE)
    lengths = head_lengths(ModelFile(source.path)) if caches else ()
    for cache in caches:
        for n_together, length in zip(cache.quantized_together, lengths):
            if length % n_together:
                raise ConfigError(
                    f"caches: {cache}: {source.path} has heads of {length} numbers, and {n_together} are "
                    "quantized together; leave one of them out"
                )


def _base_row(plan: StudyPlan, source: Source, own_chat: Need | None) -> Row:
    asked = any(text.kind == "answers" for text in plan.texts)
    row = Row(source, None, None, "unquantized", source.path, {}, [own_chat] if own_chat and asked else [])
    return replace(row, runs=_runs(plan, row, None, own_chat))


def _inputs(source: Source, metric: str) -> dict[str, Any]:
    """Give what all runs of a metric depend on that are made of a model."""
    return {
        "metrics": Metric.registry[metric].version,
        "llama_cpp_python": _core.build_info()["llama_cpp_python"],
        "model": source.sha256,
    }


def _runs(
    plan: StudyPlan, row: Row, made_of: dict[str, Any] | None, own_chat: Need | None
) -> dict[tuple[str, StudyText | None], Run]:
    names = {"model": row.source.name, "quantizer": row.quantizer.label if row.quantizer else None}
    runs = {}
    for metric in plan.config.metrics:
        if not metric.applies(row.quantizer):
            continue
        for text in plan.texts_of(metric):
            read = text
            if text and text.kind == "answers":
                if own_chat is None:  # the model has no template to be asked in
                    continue
                read = replace(text, sha256=own_chat.run.key)
            inputs = _inputs(row.source, metric.name) | {"quantizer": made_of}
            inputs |= metric.inputs(plan.asked, read)
            called = names | ({"text": text.label} if text else {})
            runs[metric.name, text] = Run(metric.name, inputs, called)
    return runs
