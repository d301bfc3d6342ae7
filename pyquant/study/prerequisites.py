"""What a study makes of a model before it quantizes it: statistics of inputs, tables, sensitivities."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyquant.calibration.calibrate import DEFAULT_CTX
from pyquant.errors import ConfigError
from pyquant.files.text import Text, read_text
from pyquant.fit.learn_tables import Per
from pyquant.schemes import Mode
from pyquant.schemes.table import TableSearch
from pyquant.study.config import StudyConfig
from pyquant.study.quantizer import Quantizer
from pyquant.study.store import Run, Store
from pyquant.tables.fold_table import read_table
from pyquant.tables.table_set import read_table_set

# As `pyquant sensitivity` has them: few chunks tell kinds of tensors apart.
SENSITIVITY_STEP, SENSITIVITY_CHUNKS = 0.01, 32

# About what they cost, beside forward passes and in tokens of these; models have about 7 kinds of
# tensors, each compared with the base.
BYTES_PER_TOKEN = 4
COLLECTING, LEARNING, KINDS_OF_TENSORS = 1.3, 300, 14


@dataclass(frozen=True)
class Prerequisite:
    """Files that quantizers of a model need, and what makes them.

    run: of kind calibrate, learn or sensitivity. files: what comes out: of calibrate the statistics and
    an importance matrix, else a TOML. uses: files of other prerequisites. options: what the library's
    function is called with. tokens: of a forward pass that take about as long.
    """

    run: Run
    files: tuple[Path, ...]
    uses: tuple[Path, ...]
    options: tuple[tuple[str, Any], ...]
    tokens: float


def about_n_tokens(text: Text, n_ctx: int, n_chunks: int | None) -> float:
    """Of the chunks of a text that are used, by its length."""
    return min(len(text.data) / BYTES_PER_TOKEN, (n_chunks or math.inf) * n_ctx)


@dataclass(frozen=True)
class CalibrationInputs:
    """A calibration's texts, read, and how they are used."""

    texts: list[Text]
    weights: list[float]
    n_ctx: int | None
    n_chunks: int | None
    random: float

    def n_tokens(self, text: Text) -> float:
        """About how many tokens of a text are used."""
        return about_n_tokens(text, self.n_ctx or DEFAULT_CTX, self.n_chunks)

    def to_json(self) -> dict[str, Any]:
        """All that decides what comes out."""
        return {
            "texts": [text.sha256 for text in self.texts],
            "weights": self.weights,
            "n_ctx": self.n_ctx,
            "n_chunks": self.n_chunks,
            "random": self.random,
        }


def read_calibrations(config: StudyConfig, quantizers: list[Quantizer]) -> dict[str, CalibrationInputs]:
    """Those that quantizers use, by name. Raises TextError."""
    used = {one.information.name for one in quantizers if one.information}
    return {
        one.name: CalibrationInputs(
            [read_text(path) for path in one.texts],
            list(one.weights or [1.0] * len(one.texts)),
            one.ctx,
            one.chunks,
            one.random,
        )
        for one in config.calibration
        if one.name in used
    }


def quantizer_inputs(
    one: Quantizer, calibrations: Mapping[str, CalibrationInputs], evaluation: dict[str, Any]
) -> dict[str, Any]:
    """A quantizer as far as it decides about results: files by what they hold, what the study makes by
    what that is made of. evaluation: how sensitivities are measured, and `like`. Raises ConfigError."""
    mode = one.mode
    inputs = mode.model_dump(mode="json", exclude_none=True)
    for key, reference in (("calibration", one.calibration), ("imatrix", one.imatrix)):
        if reference:
            inputs[key] = {"kind": reference.kind, **calibrations[reference.name].to_json()}
        elif key in inputs:
            inputs[key] = file_sha256(key, inputs[key])
    if one.measured:
        inputs["sensitivity"] = {"n_ctx": evaluation["n_ctx"]}
    elif inputs.get("sensitivity"):
        inputs["sensitivity"] = file_sha256("sensitivity", inputs["sensitivity"])
    if str(inputs.get("table", "")).endswith(".toml"):
        inputs["table"] = _table_inputs(mode, inputs["table"])
    if one.storage.searched:
        del inputs["step"]
    if one.storage.like is not None:
        inputs["like"] = {"type": one.storage.like, **evaluation}
    if one.storage.bpw is not None:
        inputs["bpw"] = one.storage.bpw
    return inputs | ({"packed": True} if one.storage.packed else {})


def file_sha256(key: str, path: str | Path) -> str:
    """Raises ConfigError, naming the key."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"{key}: {path}: {error.strerror}") from None


def _table_inputs(mode: Mode, path: str) -> dict[str, Any]:
    if isinstance(mode, TableSearch):
        tables = read_table_set(path)
        by_name = {name: values.tolist() for name, values in tables.by_name.items()}
        return {"values": tables.values.tolist(), "tables": by_name}
    table = read_table(Path(path))
    return {"values": table.values.tolist(), "lower": table.lower.tolist()}


class Preparations:
    """What quantizers need of one model."""

    def __init__(
        self,
        store: Store,
        model: str,
        calibrations: Mapping[str, CalibrationInputs],
        inputs_of: Callable[[str], dict[str, Any]],
        n_ctx: int,
    ) -> None:
        """model: its name. inputs_of: what every run of a kind depends on that is made of the model. n_ctx:
        tokens in a chunk where divergence is measured."""
        self._folder, self._model = store.calibration, model
        self._calibrations, self._inputs_of, self._n_ctx = calibrations, inputs_of, n_ctx

    def of(self, one: Quantizer) -> tuple[Mode, list[Prerequisite]]:
        """The mode with files in the place of names, and what makes them, in an order that works."""
        needs: list[Prerequisite] = []
        files: dict[str, Any] = {}
        for key, reference in (("calibration", one.calibration), ("imatrix", one.imatrix)):
            if reference:
                needs.append(self._calibrate(reference.name))
                files[key] = needs[0].files[reference.kind == "imatrix"]
        mode = one.mode.model_copy(update=files)
        known = mode.calibration or mode.imatrix
        if one.table_per is not None:
            needs.append(self._learn(one.table_per, one.knows, known, needs))
            files["table"] = str(needs[-1].files[0])
        if one.calibration and one.measured:
            needs.append(self._measure(one.calibration.name, needs[0]))
            files["sensitivity"] = needs[-1].files[0]
        return mode.model_copy(update=files), needs

    def _calibrate(self, name: str) -> Prerequisite:
        made_of = self._calibrations[name]
        run = self._run("calibrate", {"calibration": made_of.to_json()}, name)
        options = (
            ("texts", tuple(text.path.resolve() for text in made_of.texts)),
            ("weights", tuple(made_of.weights)),
            ("n_ctx", made_of.n_ctx),
            ("n_chunks", made_of.n_chunks),
            ("random", made_of.random),
        )
        files = tuple(self._folder / f"{run.key}{ending}" for ending in (".stats", ".imatrix"))
        tokens = sum(made_of.n_tokens(text) for text in made_of.texts)
        return Prerequisite(run, files, (), options, tokens * COLLECTING)

    def _learn(
        self, per: Per, knows: dict[str, str] | None, known: Path | None, needs: list[Prerequisite]
    ) -> Prerequisite:
        of = needs[0].run.inputs["calibration"] if needs else known and file_sha256("calibration", known)
        name = " ".join(["per", per, *(knows or {}).values()])
        run = self._run("learn", {"per": per, "calibration": of}, name)
        options = (("per", per), ("calibration", known))
        return Prerequisite(run, (self._toml(run),), (known,) if needs else (), options, LEARNING)

    def _measure(self, name: str, calibrate: Prerequisite) -> Prerequisite:
        made_of, stats = self._calibrations[name], calibrate.files[0]
        n_chunks = min(made_of.n_chunks or SENSITIVITY_CHUNKS, SENSITIVITY_CHUNKS)
        more = {**calibrate.run.inputs, "n_ctx": self._n_ctx, "n_chunks": n_chunks}
        run = self._run("sensitivity", more, name)
        options = (
            ("calibration", stats),
            ("text", made_of.texts[0].path.resolve()),
            ("step", SENSITIVITY_STEP),
            ("n_ctx", self._n_ctx),
            ("n_chunks", n_chunks),
        )
        tokens = KINDS_OF_TENSORS * n_chunks * self._n_ctx
        return Prerequisite(run, (self._toml(run),), (stats,), options, tokens)

    def _toml(self, run: Run) -> Path:
        return self._folder / f"{run.key}.toml"

    def _run(self, kind: str, more: dict[str, Any], what: str) -> Run:
        return Run(kind, self._inputs_of(kind) | more, {"model": self._model, "quantizer": f"{kind} {what}"})
