"""One quantizer of a study: a mode that may name what the study is yet to make."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from pydantic import ValidationError

from pyquant.errors import ConfigError, did_you_mean
from pyquant.fit.learn_tables import Per
from pyquant.fit.method.stages import HIGH
from pyquant.fit.mixtures import WantedSize, read_wanted_size
from pyquant.fit.step_search import START
from pyquant.fit.target import KEYS, Target, read_target
from pyquant.schemes import Mode
from pyquant.schemes.ecsq import Ecsq
from pyquant.schemes.settings import explain, make_mode
from pyquant.schemes.table import TableSearch
from pyquant.study.by_method import ByMethod, by_method
from pyquant.study.calibration_config import CalibrationConfig
from pyquant.study.quantizer_keys import MIXED, OfStudies, as_mode
from pyquant.study.sources import short_names

FILES = ("table", "imatrix", "hessian", "sensitivity", "recipe")  # keys of a mode that may name a file
DIAGONAL = "imatrix:"  # before a calibration's name: its importance matrix, without Hessian statistics
LEARNED = "learned:"  # before what each learned table is for
MEASURED = "measured"  # in the place of a file of sensitivities


# Forms in which a target is written in a name.
LABELS = {
    "target_bpw": "{:.15g} bits in all",
    "target_size": "{:,} bytes",
    "like": "like {}",
    "code_bits": "{:.15g} bits",
}


@dataclass(frozen=True)
class Reference:
    """A calibration of the study, as a quantizer uses it."""

    name: str
    uses: Literal["hessian", "imatrix"]  # its Hessian statistics, or its importance matrix alone


@dataclass(frozen=True)
class Quantizer:
    """A quantizer of a study.

    Attributes
    ----------
    mode
        As it is written: names stand where files are that the study makes, and any step where it is
        searched for.
    target
        What the step is searched for; None where it is given, or there is none.
    pqz
        Whether its files are entropy-coded.
    calibration, imatrix
        What names there refer to.
    method
        The method that makes its file, of the mode's type or size, and calibrates itself; None: the mode
        does.
    known_by
        Name of the calibration or file that it knows inputs by, if it knows them.
    label
        Its mode, and what is not as usual: no other quantizer of the study has the same.
    alike
        The same without what it knows of inputs.
    """

    mode: Mode
    target: Target | None
    pqz: bool
    calibration: Reference | None
    imatrix: Reference | None
    method: ByMethod | None
    known_by: str | None
    label: str
    alike: str

    @property
    def information(self) -> Reference | None:
        """The calibration of the study that it knows inputs by."""
        return self.calibration or self.imatrix

    @property
    def knows(self) -> dict[str, str] | None:
        """Knowledge of inputs: the `name` of a calibration or file, and `how` that is used.

        How is one of gptq, error_propagation, best (the method), diagonal (rounded one by one, weighted)
        and imatrix (by GGML).
        """
        if self.method:
            return self.method.knows
        if self.known_by is None:
            return None
        if self.mode.imatrix:
            how = "imatrix"
        elif self.mode.error_propagation:
            how = "error_propagation"
        else:
            by_hessian = self.calibration is None or self.calibration.uses == "hessian"
            how = "gptq" if by_hessian else "diagonal"
        return {"name": self.known_by, "how": how}

    @property
    def table_per(self) -> Per | None:
        """Scope of each learned table; None where none are learned."""
        table = str(getattr(self.mode, "table", ""))
        return cast(Per, table.removeprefix(LEARNED)) if table.startswith(LEARNED) else None

    @property
    def mixed(self) -> WantedSize | None:
        """Size of the file whose recipe is found; None where none is."""
        recipe = str(getattr(self.mode, "recipe", ""))
        return read_wanted_size("recipe", recipe.removeprefix(MIXED)) if recipe.startswith(MIXED) else None

    @property
    def wanted(self) -> str | WantedSize:
        """The type or the size of a stock file, as `pyquant.quantize` takes it."""
        return self.mixed or self.mode.mode.removeprefix("ggml:")

    @property
    def needs_evaluation(self) -> bool:
        """Say whether its step is searched for by KLD on a text."""
        return self.target is not None and self.target.key == "like"

    @property
    def measured(self) -> bool:
        """Say whether sensitivities are measured."""
        return str(getattr(self.mode, "sensitivity", None)) == MEASURED


def make_quantizers(
    quantizers: list[dict[str, Any]],
    common: dict[str, Any],
    calibrations: Mapping[str, CalibrationConfig],
) -> list[Quantizer]:
    """Make every combination of the lists in every quantizer, in order, each once.

    quantizers: settings of each: keys of its mode, and of `OfStudies`.
    common: settings of all that do not have their own.
    Raises ConfigError: a setting is wrong. The message says of which quantizer.
    """
    made: dict[tuple[Mode, Target | None, bool, str], Quantizer] = {}
    own = {key for settings in quantizers for key in settings}
    hidden = {key for key, value in common.items() if key not in own and len(_values(value)) == 1}
    names = _names([common, *quantizers])
    for i, settings in enumerate(quantizers, 1):
        if empty := [key for key, value in settings.items() if value == []]:
            raise ConfigError(f"quantizer {i}: {empty[0]}: an empty list makes no quantizer")
        for flat in _combinations({**common, **settings}):
            quantizer = _make(flat, f"quantizer {i}", calibrations, hidden, names)
            made.setdefault(
                (quantizer.mode, quantizer.target, quantizer.pqz, str(quantizer.method)), quantizer
            )
    return list(made.values())


def _combinations(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    axes = map(_values, settings.values())
    return (dict(zip(settings, values)) for values in itertools.product(*axes))


def _values(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _names(settings: Sequence[Mapping[str, Any]]) -> dict[tuple[str, Path], str]:
    # What is written in the place of a file, by its key: as much of it as tells it from the others.
    names: dict[tuple[str, Path], str] = {}
    placed = [key for one in settings for key in one if any(map(os.path.isabs, map(str, _values(one[key]))))]
    for key in {*FILES, *placed}:
        every = [str(value) for one in settings for value in _values(one.get(key, []))]
        written = {Path(value): None for value in every if not value.startswith(MIXED)}
        bare = [path.parent / path.stem for path in written]
        short = short_names(bare if len(set(bare)) == len(bare) else list(written))
        names |= {(key, path): name for path, name in zip(written, short)}
    return names


def _make(
    settings: dict[str, Any],
    where: str,
    calibrations: Mapping[str, CalibrationConfig],
    hidden: Collection[str],
    names: Mapping[tuple[str, Path], str],
) -> Quantizer:
    is_ecsq = settings.get("mode") == Ecsq.name
    given = {key: settings[key] for key in OfStudies.model_fields if key in settings}
    settings = {key: value for key, value in settings.items() if key not in given}
    try:
        of_study = OfStudies.model_validate({"pqz": is_ecsq, **given})
        settings, of_study = as_mode(settings, of_study)
        method = by_method(of_study, calibrations)
        wanted = of_study.model_dump() | {"step": settings.get("step")}
        target = read_target({key: wanted[key] for key in KEYS}, mode=settings.get("mode"))
    except ValidationError as error:
        raise ConfigError(f"{where}: {explain(error, OfStudies, 'a quantizer')}") from None
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    if target is not None and target.searched:
        settings["step"] = START
    else:
        target = None
    mode = make_mode(settings, where)
    hidden = {*hidden, *({"dampening"} - settings.keys())}  # whose default depends on the rest
    of_inputs = ("hessian", "imatrix", "dampening", "error_propagation", "equalize", "sensitivity")
    calibration, imatrix = (_reference(mode, key, where, calibrations) for key in ("hessian", "imatrix"))
    known_by = [reference.name for reference in (calibration, imatrix) if reference]
    known_by += [names[key, path] for key in ("hessian", "imatrix") if (path := getattr(mode, key))]
    label = _label(mode, target, of_study.pqz, hidden, names)
    quantizer = Quantizer(
        mode=mode,
        target=target,
        pqz=of_study.pqz,
        calibration=calibration,
        imatrix=imatrix,
        method=method,
        known_by=next(iter(known_by), None),
        label=" ".join([label, *_of_method(method, hidden)]),
        alike=_label(mode, target, of_study.pqz, {*hidden, *of_inputs}, names),
    )
    _check(quantizer, where)
    return quantizer


def _reference(mode: Mode, key: str, where: str, calibrations: Collection[str]) -> Reference | None:
    path = getattr(mode, key)
    if path is None:
        return None
    name = str(path).removeprefix(DIAGONAL)
    if name in calibrations:
        diagonal = key == "imatrix" or str(path).startswith(DIAGONAL)
        return Reference(name, "imatrix" if diagonal else "hessian")
    if os.path.isabs(path) and os.path.isfile(path):  # workers are in another folder
        return None
    known = ", ".join(calibrations) or "it has none"
    hint = did_you_mean(name, calibrations)
    raise ConfigError(
        f"{where}: {key}: {str(path)!r} is neither a file nor a [[calibration]] of the study ({known}){hint}"
    )


def _check(quantizer: Quantizer, where: str) -> None:
    mode = quantizer.mode
    if mode.hessian and mode.imatrix:
        raise ConfigError(f"{where}: imatrix: a calibration holds one; give either imatrix or hessian")
    per = quantizer.table_per
    if per is not None and (not isinstance(mode, TableSearch) or per not in get_args(Per)):
        choices = ", ".join(LEARNED + choice for choice in get_args(Per))
        raise ConfigError(
            f"{where}: table: mode table takes {choices}, or a TOML file, got {LEARNED + per!r}"
        )
    try:
        mixed = quantizer.mixed
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    by_hessian = quantizer.calibration is not None and quantizer.calibration.uses == "hessian"
    if mixed and not (quantizer.method or by_hessian):
        raise ConfigError(f"{where}: recipe: one is found with a calibration of the study; name it")
    if quantizer.measured and quantizer.calibration is None:
        raise ConfigError(
            f"{where}: sensitivity: measured on the text of a calibration of the study, and "
            f"{str(mode.hessian)!r} is none"
        )


def _of_method(method: ByMethod | None, hidden: Collection[str]) -> Iterator[str]:
    if method:
        yield method.name
        if method.effort == HIGH:
            yield f"effort={HIGH}"
        if method.calibration and "calibration" not in hidden:
            yield f"calibration={method.calibration.name}"


def _label(
    mode: Mode,
    target: Target | None,
    pqz: bool,
    hidden: Collection[str],
    names: Mapping[tuple[str, Path], str],
) -> str:
    parts = [mode.mode]
    unusual = mode.model_dump(exclude={"mode", *hidden}, exclude_defaults=True)
    if target:
        del unusual["step"]
    for key, value in unusual.items():
        value = names.get((key, Path(str(value))), value)
        # A value alone does where every quantizer of the mode has one, but for a step's.
        bare = key not in {*Mode.model_fields, "step"} and type(mode).model_fields[key].is_required()
        parts.append(str(value) if bare else key if value is True else f"{key}={value}")
    parts += [LABELS[target.key].format(target.value)] if target else []
    if pqz != (mode.mode == Ecsq.name):
        parts.append("pqz" if pqz else "gguf")
    return " ".join(parts)
