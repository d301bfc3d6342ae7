"""Stages of a method: each adds a setting to the stages before, unless these do better without it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from pyquant.calibration.calibration import open_calibration
from pyquant.calibration.sample import MOST_CHUNKS, spread
from pyquant.errors import ConfigError, ModelFileError, UnreadableFile
from pyquant.fit.method.held_out import HeldOut, HeldOutKld
from pyquant.fit.method.work_folder import WorkFolder
from pyquant.fit.scales.train_scales import train_scales
from pyquant.formulas import bits_per_weight
from pyquant.llama.model import Model
from pyquant.models.model_file import ModelFile
from pyquant.rounding.collecting import tokens_of
from pyquant.rounding.metadata import EQUALIZATION, GPTQ, OUTPUT_SIDE, PROPAGATION, TRAINED_SCALES
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode

MethodName = Literal["rtn", "imatrix", "gptq", "best"]
METHODS: tuple[str, ...] = get_args(MethodName)
BY_GPTQ = METHODS[2:]  # those that round with error feedback
Effort = Literal["normal", "high"]
EFFORTS: tuple[Effort, ...] = get_args(Effort)
NORMAL, HIGH = EFFORTS

PROPAGATION_CHUNKS = 100  # chunks that errors are propagated over; all where Hessians come of the same pass
SCALE_CHUNKS = 64  # chunks that scales are trained on

NO_GPTQ = f"it is of {GPTQ}, which raises the KLD"

# (what is done, steps done, all steps)
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Stage:
    """A setting to try.

    Attributes
    ----------
    name
        What people read.
    settings
        What it adds to a mode's settings; None removes a key.
    instead
        Whether it is only made where the stage before does not apply.
    trains_on
        Statistics whose tokens the best file's scales are trained on; None: a file is quantized.
    """

    name: str
    settings: dict[str, Any]
    instead: bool = False
    trains_on: Path | None = None


@dataclass(frozen=True)
class Tried:
    """What came of a stage.

    Attributes
    ----------
    name
        The stage's.
    kld
        Of its file on held-out chunks; None where it does not apply.
    kept
        Whether the output has it.
    why
        Why it does not apply; None where it does.
    """

    name: str
    kld: HeldOutKld | None
    kept: bool
    why: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        kld = self.kld.to_json() if self.kld else None
        return {"name": self.name, "kld": kld, "kept": self.kept, "why": self.why}


def stages_of(
    method: str,
    statistics: Path,
    *,
    output_side: bool,
    collected: bool,
    propagates: bool,
    trains_scales: bool,
) -> list[Stage]:
    """List the stages of a method. The first is what llama-quantize makes with an imatrix.

    output_side: whether the statistics have output-side Hessians.
    collected: whether Hessians are collected while a model is rounded: for each stage anew, so there is one
    with all of them.
    propagates: whether there are tokens enough to propagate errors by.
    trains_scales: whether scales are trained at last.
    """
    imatrix = Stage("imatrix", {"imatrix": statistics})
    if method == imatrix.name:
        return [imatrix]
    gptq = Stage(GPTQ, {"imatrix": None, "hessian": statistics, "output_side": False})
    equalized = Stage(EQUALIZATION, {"equalize": True})
    n_chunks = MOST_CHUNKS if collected else PROPAGATION_CHUNKS
    propagated = [Stage(PROPAGATION, {"error_propagation": n_chunks})] if propagates else []
    of_rows = [Stage(OUTPUT_SIDE, {"output_side": True})] if output_side else []
    trained = [Stage(TRAINED_SCALES, {}, trains_on=statistics)] if trains_scales else []
    if method != "best":
        return [imatrix, gptq, *trained]
    if collected:
        together = [gptq, *of_rows, *propagated, equalized]
        less = [_all_of(together[:n], instead=n < len(together)) for n in range(len(together), 0, -1)]
        return [imatrix, *less, *trained]
    return [imatrix, gptq, *of_rows, equalized, *propagated, *trained]


def _all_of(stages: list[Stage], *, instead: bool) -> Stage:
    """Make one stage of several."""
    settings = {key: value for stage in stages for key, value in stage.settings.items()}
    return Stage(", ".join(stage.name for stage in stages), settings, instead)


class Stages:
    """Tries stages one after the other.

    The output is the file of the least KLD on held-out chunks. Later stages build on a stage that is worse
    by less than the standard error too, as a few chunks tell no more: some stages gain only together.

    Parameters
    ----------
    model
        What is quantized.
    settings
        Of a mode: the type or the recipe.
    held_out
        What files are compared by.
    folder
        Where files are made, and what is known of stages that are done.
    options
        Arguments of `quantize_model`.
    memory
        What activations may take in memory, in bytes; None: 512 MiB.
    progress
        Called while a stage is made.
    """

    def __init__(
        self,
        model: ModelFile,
        settings: dict[str, Any],
        held_out: HeldOut,
        folder: WorkFolder,
        options: dict[str, Any],
        memory: int | None,
        progress: Progress,
    ) -> None:
        self._model, self._held_out, self._folder = model, held_out, folder
        self._options, self._memory, self._progress = options, memory, progress
        self._settings = settings
        self._built_on: list[str] = []  # stages that the settings are of
        self._kld: HeldOutKld | None = None  # of these settings
        self._least: HeldOutKld | None = None
        self.best: list[Path] = []
        self.result: dict[str, Any] = {}
        self.tried: list[Tried] = []

    def run(self, stages: list[Stage]) -> None:
        """Try all. `best` is the file of the least KLD, or its shards; `result` is what was said of it.

        Raises
        ------
        PyquantError
            The first stage fails; others are left out then.
        """
        if not self._is_there(stages):
            self._folder.forget(stage.name for stage in stages)
        for stage in stages:
            if stage.instead and self.tried[-1].kld is not None:
                continue
            settings = {
                key: value for key, value in {**self._settings, **stage.settings}.items() if value is not None
            }
            known = self._folder.known(stage.name)
            if known is None:
                if stage.trains_on:
                    known = self._made(stage.name, partial(self._train, stage.name, stage.trains_on))
                elif "hessian" in settings or not self._built_on:
                    known = self._made(stage.name, partial(self._quantize, stage.name, settings))
                else:
                    known = {"why": NO_GPTQ}
                self._folder.note(stage.name, known)
            self._take(stage, settings, known)

    def _is_there(self, stages: list[Stage]) -> bool:
        """Say whether the file of the best stage that is noted is there: it went if a run ended late."""
        noted = [(stage.name, known) for stage in stages if (known := self._folder.known(stage.name))]
        klds = {name: _kld(known).mean for name, known in noted if "kld" in known}
        return not klds or all(
            path.exists() for path in self._folder.made(min(klds, key=lambda name: klds[name]))
        )

    def _made(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            result = make()
            kld = self._held_out.kld(Path(result["output"]))
            if not math.isfinite(kld.mean):
                raise ModelFileError(f"{self._model.path}: with {name}, its predictions are no numbers")
        except UnreadableFile:  # leaving the stage out would hide it
            raise
        except (ConfigError, ModelFileError) as error:
            if not self.best:
                raise
            return {"why": str(error)}
        return {"kld": kld.to_json(), "result": result}

    def _quantize(self, name: str, settings: dict[str, Any]) -> dict[str, Any]:
        done = quantize_model(
            self._model, self._folder.file(name), make_mode(settings), force=True,
            progress=lambda done, total, _name: self._progress(name, done, total),
            memory=self._memory if "hessian" in settings else None,
            checkpoint=self._folder.checkpoint(name), **self._options,
        )  # fmt: skip
        return done.to_json()

    def _train(self, name: str, statistics: Path) -> dict[str, Any]:
        with Model(self._model) as running:
            tokens, texts = tokens_of(open_calibration(statistics), running)
        files = train_scales(
            self._model, ModelFile(self.best[0]), self._folder.file(name),
            spread(tokens[texts >= 0], SCALE_CHUNKS), threads=self._options["threads"], force=True,
            progress=lambda done, total: self._progress(name, done, total),
        )  # fmt: skip
        n_bytes = sum(path.stat().st_size for path in files)
        changed = {
            "output": str(files[0]), "files": [str(path) for path in files], "output_bytes": n_bytes,
            "bits_per_weight": bits_per_weight(n_bytes, self._model.n_weights),
        }  # fmt: skip
        errors = {"rmse": None, "snr_db": None}  # which were measured before
        tensors = [{**tensor, **errors} for tensor in self.result["tensors"]]
        return {**self.result, **changed, **errors, "tensors": tensors}

    def _take(self, stage: Stage, settings: dict[str, Any], known: dict[str, Any]) -> None:
        if "kld" not in known:
            self.tried.append(Tried(stage.name, None, False, known["why"]))
            return
        kld, files = _kld(known), self._folder.made(stage.name)
        of_best = [each.name for each in self.tried if each.kept]
        made_from = [*(of_best if stage.trains_on else self._built_on), stage.name]
        if self._kld is None or not kld.is_worse(self._kld):
            self._settings, self._built_on, self._kld = settings, made_from, kld
        is_best = self._least is None or kld.mean < self._least.mean
        self.tried.append(Tried(stage.name, kld, is_best))
        if not is_best:
            _remove(files)
            return
        _remove(self.best)
        self.best, self.result, self._least = files, known["result"], kld
        self.tried = [replace(each, kept=each.name in made_from) for each in self.tried]


def _kld(known: dict[str, Any]) -> HeldOutKld:
    return HeldOutKld(tuple(known["kld"]["by_chunk"]))


def _remove(files: list[Path]) -> None:
    for path in files:
        path.unlink(missing_ok=True)
