"""Plan what a study makes of a model before quantizing it: statistics of inputs, tables, sensitivities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyquant.calibration.calibrate import DEFAULT_CTX
from pyquant.errors import ConfigError
from pyquant.evaluate.bundled import ANSWER_TOKENS, N_QUESTIONS
from pyquant.files.sha256 import files_sha256
from pyquant.files.text import Text, read_text
from pyquant.fit.learn_tables import Per
from pyquant.fit.method.split_text import default_texts
from pyquant.fit.mixtures import WantedSize
from pyquant.limits import SENSITIVITY_CHUNKS, SENSITIVITY_CTX
from pyquant.schemes import Mode
from pyquant.schemes.fold_table import read_table
from pyquant.schemes.table import TableSearch
from pyquant.schemes.table_set import read_table_set
from pyquant.study.config import StudyConfig
from pyquant.study.costs import COLLECTING, LEARNING, MIXING, TENSORS
from pyquant.study.quantizer import FILES, Quantizer
from pyquant.study.store import Run
from pyquant.study.task import about_n_tokens

# Raised when the same calibration makes another file. 2: GPTQ rounds to types that llama.cpp falls back to.
# 3: ecsq's codes have a step for each row. 4: scale and minimum move together.
GPTQ_VERSION = 4
# The same for error propagation. 2: sums over tokens are of BF16. 3: equations are solved by threads.
PROPAGATED_VERSION = 3

OWN_CHAT_COST = 10 * N_QUESTIONS * ANSWER_TOKENS  # tokens come one after the other

# The same for methods, their default texts included. 2: error propagation is that of 3.
METHODS_VERSION = 2

MIX_CHUNKS = 8  # of a calibration's first text, that mixtures are compared on


@dataclass(frozen=True)
class Need:
    """Files that quantizers of a model need, and what makes them."""

    run: Run
    # what comes out: of `calibrate` the statistics and an importance matrix, else a TOML
    files: tuple[Path, ...]
    uses: tuple[Path, ...]  # files of other needs
    options: tuple[tuple[str, Any], ...]  # arguments of the library's function, by name
    tokens: float  # estimate of the time, in tokens of a forward pass
    # those of `files` that may be as large as a model, and are removed when the study is done
    large: tuple[Path, ...] = ()


@dataclass(frozen=True)
class CalibrationInputs:
    """A calibration's texts, read, and how they are used: see `CalibrationConfig`."""

    texts: list[Text]
    weights: list[float]
    n_ctx: int | None
    n_chunks: int | None
    random: float
    process_output: bool = False
    output_side: int | None = None

    def n_tokens(self, text: Text) -> float:
        """Estimate how many tokens of a text are used."""
        return about_n_tokens(len(text.data), self.n_ctx or DEFAULT_CTX, self.n_chunks)

    def to_json(self) -> dict[str, Any]:
        """Return all that decides what comes out."""
        return {
            "texts": [text.sha256 for text in self.texts],
            "weights": self.weights,
            "n_ctx": self.n_ctx,
            "n_chunks": self.n_chunks,
            "random": self.random,
            **({"process_output": True} if self.process_output else {}),
            **({"output_side": self.output_side} if self.output_side else {}),
        }


def read_calibrations(config: StudyConfig, quantizers: list[Quantizer]) -> dict[str, CalibrationInputs]:
    """Read the calibrations that quantizers use, by name. Raises TextError."""
    used = {quantizer.information.name for quantizer in quantizers if quantizer.information}
    by_methods = (quantizer.method.calibration for quantizer in quantizers if quantizer.method)
    used |= {calibration.name for calibration in by_methods if calibration}
    return {
        calibration.name: CalibrationInputs(
            [read_text(path) for path in calibration.texts],
            list(calibration.weights or [1.0] * len(calibration.texts)),
            calibration.ctx,
            calibration.chunks,
            calibration.random,
            calibration.process_output,
            calibration.output_side,
        )
        for calibration in config.calibration
        if calibration.name in used
    }


def quantizer_inputs(
    quantizer: Quantizer, calibrations: Mapping[str, CalibrationInputs], evaluation: dict[str, Any]
) -> dict[str, Any]:
    """Return the settings that results depend on: files by hash, files the study makes by their inputs.

    evaluation: how sensitivities are measured, and `like`.
    Raises ConfigError: a file cannot be read.
    """
    mode, target = quantizer.mode, quantizer.target
    inputs = mode.model_dump(mode="json", exclude_none=True)
    if mode.source is not None:
        inputs["scheme"] = file_sha256("scheme", mode.source)
    for key, value in mode:
        if key not in FILES and isinstance(value, str | Path) and Path(value) in mode.files():
            inputs[key] = file_sha256(key, value)
    for key, reference in (("hessian", quantizer.calibration), ("imatrix", quantizer.imatrix)):
        if reference:
            inputs[key] = {"uses": reference.uses, **calibrations[reference.name].to_json()}
        elif key in inputs:
            inputs[key] = file_sha256(key, inputs[key])
    if mode.hessian:
        inputs["gptq"] = GPTQ_VERSION
    if mode.error_propagation:
        inputs["propagated"] = PROPAGATED_VERSION
    if quantizer.measured:
        inputs["sensitivity"] = {"n_ctx": evaluation["n_ctx"]}
    elif inputs.get("sensitivity"):
        inputs["sensitivity"] = file_sha256("sensitivity", inputs["sensitivity"])
    if str(inputs.get("table", "")).endswith(".toml"):
        inputs["table"] = _table_inputs(mode, inputs["table"])
    if quantizer.method:
        calibration = quantizer.method.calibration
        made_of = calibrations[calibration.name].to_json() if calibration else None
        texts = None if calibration and calibration.texts else default_texts()
        inputs["method"] = {
            "name": quantizer.method.name, "effort": quantizer.method.effort, "calibration": made_of,
            "texts": texts, "version": METHODS_VERSION,
        }  # fmt: skip
    elif quantizer.mixed:
        inputs["recipe"] = {"mixed": inputs["recipe"], "n_ctx": evaluation["n_ctx"]}
    elif "recipe" in inputs:
        inputs["recipe"] = file_sha256("recipe", inputs["recipe"])
    if target is not None:
        del inputs["step"]
        if target.key == "like":
            inputs["like"] = {"type": target.value, **evaluation}
        else:
            inputs[target.key] = target.value
    return inputs | ({"pqz": True} if quantizer.pqz else {})


def file_sha256(key: str, path: str | Path) -> str:
    """Hash a file. Raises ConfigError, naming the key."""
    try:
        return files_sha256([Path(path)])
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
    """Prerequisites that quantizers need of one model."""

    def __init__(
        self,
        folder: Path,
        model: str,
        calibrations: Mapping[str, CalibrationInputs],
        inputs_of: Callable[[str], dict[str, Any]],
        n_ctx: int,
    ) -> None:
        """Prepare for the quantizers of one model.

        folder: where files are made.
        inputs_of: gives what every run of a metric, by its name, depends on that is made of the model.
        n_ctx: tokens in a chunk where KLD is measured.
        """
        self._folder, self._model = folder, model
        self._calibrations, self._inputs_of, self._n_ctx = calibrations, inputs_of, n_ctx

    def of(self, quantizer: Quantizer) -> tuple[Mode, list[Need]]:
        """Return the mode with files in the place of names, and what makes them, in an order that works."""
        needs: list[Need] = []
        files: dict[str, Any] = {}
        for key, reference in (("hessian", quantizer.calibration), ("imatrix", quantizer.imatrix)):
            if reference:
                needs.append(self._calibrate(reference.name))
                files[key] = needs[0].files[reference.uses == "imatrix"]
        mode = quantizer.mode.model_copy(update=files)
        known = mode.hessian or mode.imatrix
        if quantizer.table_per is not None:
            needs.append(self._learn(quantizer.table_per, quantizer.knows, known, needs))
            files["table"] = str(needs[-1].files[0])
        if quantizer.calibration and quantizer.measured:
            needs.append(self._measure(quantizer.calibration.name, needs[0]))
            files["sensitivity"] = needs[-1].files[0]
        if quantizer.calibration and quantizer.mixed:
            needs.append(self._measure(quantizer.calibration.name, needs[0]))
            needs.append(self._mix(quantizer, quantizer.mixed, needs))
            files["recipe"] = needs[-1].files[0]
        return mode.model_copy(update=files), needs

    def own_chat(self) -> Need:
        """Return what makes the model's own answers."""
        run = self._run("own_chat", {}, "")
        return Need(run, (self._folder / f"{run.key}.jsonl",), (), (), OWN_CHAT_COST)

    def _calibrate(self, name: str) -> Need:
        made_of = self._calibrations[name]
        run = self._run("calibrate", {"calibration": made_of.to_json()}, name)
        options = (
            ("texts", tuple(text.path.absolute() for text in made_of.texts)),
            ("weights", tuple(made_of.weights)),
            ("n_ctx", made_of.n_ctx),
            ("n_chunks", made_of.n_chunks),
            ("random", made_of.random),
            ("process_output", made_of.process_output),
            ("output_side", made_of.output_side),
        )
        files = tuple(self._folder / f"{run.key}{ending}" for ending in (".stats", ".imatrix"))
        tokens = sum(made_of.n_tokens(text) for text in made_of.texts)
        return Need(run, files, (), options, tokens * COLLECTING, large=files[:1])

    def _learn(self, per: Per, knows: dict[str, str] | None, known: Path | None, needs: list[Need]) -> Need:
        of = needs[0].run.inputs["calibration"] if needs else known and file_sha256("calibration", known)
        name = " ".join(["per", per, *(knows or {}).values()])
        run = self._run("learn", {"per": per, "calibration": of}, name)
        options = (("per", per), ("hessian", known))
        return Need(run, (self._toml(run),), (known,) if needs and known else (), options, LEARNING)

    def _measure(self, name: str, calibrate: Need) -> Need:
        made_of, stats = self._calibrations[name], calibrate.files[0]
        n_chunks = min(made_of.n_chunks or SENSITIVITY_CHUNKS, SENSITIVITY_CHUNKS)
        n_ctx = min(self._n_ctx, SENSITIVITY_CTX)
        more = {"calibrate": calibrate.run.inputs, "n_ctx": n_ctx, "n_chunks": n_chunks}
        run = self._run("sensitivity", more, name)
        options = (
            ("hessian", stats),
            ("text", made_of.texts[0].path.absolute()),
            ("n_ctx", n_ctx),
            ("n_chunks", n_chunks),
        )
        tokens = TENSORS * n_chunks * n_ctx
        return Need(run, (self._toml(run),), (stats,), options, tokens)

    def _mix(self, quantizer: Quantizer, wanted: WantedSize, needs: list[Need]) -> Need:
        assert quantizer.calibration is not None
        name, equalize = quantizer.calibration.name, quantizer.mode.equalize
        stats, sensitivities = (need.files[0] for need in needs)
        more = {
            "sensitivity": needs[1].run.inputs,
            "n_ctx": self._n_ctx,
            "wanted": str(wanted),
            "gptq": GPTQ_VERSION,
            **({"equalize": True} if equalize else {}),
        }
        run = self._run("mix", more, f"{wanted} {name}" + (" equalize" if equalize else ""))
        options = (
            ("hessian", stats),
            ("text", self._calibrations[name].texts[0].path.absolute()),
            ("target", wanted),
            ("sensitivity", sensitivities),
            ("equalize", equalize),
            ("n_ctx", self._n_ctx),
            ("n_chunks", MIX_CHUNKS),
        )
        return Need(run, (self._toml(run),), (stats, sensitivities), options, MIXING)

    def _toml(self, run: Run) -> Path:
        return self._folder / f"{run.key}.toml"

    def _run(self, metric: str, more: dict[str, Any], what: str) -> Run:
        names: dict[str, str | None] = {"model": self._model, "quantizer": f"{metric} {what}".rstrip()}
        return Run(metric, self._inputs_of(metric) | more, names)
