"""One quantizer of a study: a mode that may name what the study is yet to make."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pyquant.errors import ConfigError
from pyquant.fit.learn_tables import Per
from pyquant.fit.step_search import LARGEST_CODE_BITS, START
from pyquant.schemes import Mode
from pyquant.schemes.settings import explain, make_mode
from pyquant.schemes.table import TableSearch
from pyquant.schemes.uniform import Uniform

FILES = ("table", "imatrix", "calibration", "sensitivity")  # keys of a mode that may name a file
NAMED = ("store", "sensitivity", "step")  # parameters of modes whose values alone say too little
DIAGONAL = "imatrix:"  # before a calibration's name: its importance matrix, without second moments
LEARNED = "learned:"  # before what each learned table is for
MEASURED = "measured"  # in the place of a file of sensitivities


class Storage(BaseModel):
    """Keys of a quantizer that its mode does not have."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    packed: bool = Field(description="stored as `pyquant pack` does")
    bpw: float | None = Field(None, gt=0, le=LARGEST_CODE_BITS, description="of quantized tensors, packed")
    like: str | None = Field(None, description="a stock type, to be as near to the model as that is")

    @property
    def searched(self) -> bool:
        """Whether the step is searched for."""
        return self.bpw is not None or self.like is not None


@dataclass(frozen=True)
class Reference:
    """A calibration of the study, as a quantizer uses it."""

    name: str
    kind: Literal["moments", "imatrix"]


@dataclass(frozen=True)
class Quantizer:
    """mode: as it is written, with names in the place of files that the study makes, and any step where
    it is searched for. calibration, imatrix: what names there refer to. label: its mode, and what is not
    as usual; alike: the same without what it knows of inputs."""

    mode: Mode
    storage: Storage
    calibration: Reference | None
    imatrix: Reference | None
    label: str
    alike: str

    @property
    def information(self) -> Reference | None:
        """The calibration of the study that tells it of inputs."""
        return self.calibration or self.imatrix

    @property
    def knows(self) -> dict[str, str] | None:
        """What it knows of inputs: the name of a calibration or file, and how that is used: compensated,
        sequential (that, in order), diagonal (rounded one by one, weighted) or imatrix (by GGML)."""
        path = self.mode.calibration or self.mode.imatrix
        if path is None:
            return None
        if self.mode.imatrix:
            how = "imatrix"
        elif self.mode.sequential:
            how = "sequential"
        else:
            compensates = self.calibration is None or self.calibration.kind == "moments"
            how = "compensated" if compensates else "diagonal"
        return {"name": self.information.name if self.information else path.stem, "how": how}

    @property
    def table_per(self) -> Per | None:
        """What each learned table is for; None where none are learned."""
        table = str(getattr(self.mode, "table", ""))
        return table.removeprefix(LEARNED) if table.startswith(LEARNED) else None

    @property
    def measured(self) -> bool:
        """Whether sensitivities are measured."""
        return str(getattr(self.mode, "sensitivity", None)) == MEASURED


def make_quantizers(
    quantizers: list[dict[str, Any]], common: dict[str, Any], calibrations: Collection[str]
) -> list[Quantizer]:
    """Every combination of the lists in every quantizer, in order, each once.

    common: settings of all. calibrations: names of the study's. Raises ConfigError.
    """
    found: dict[tuple[Mode, Storage], Quantizer] = {}
    for i, settings in enumerate(quantizers, 1):
        hidden = common.keys() - settings.keys()
        for flat in _combinations({**common, **settings}):
            one = _make(flat, f"quantizer {i}", calibrations, hidden)
            found.setdefault((one.mode, one.storage), one)
    return list(found.values())


def _combinations(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    axes = [value if isinstance(value, list) else [value] for value in settings.values()]
    return (dict(zip(settings, values)) for values in itertools.product(*axes))


def _make(
    settings: dict[str, Any], where: str, calibrations: Collection[str], hidden: Collection[str]
) -> Quantizer:
    is_uniform = settings.get("mode") == Uniform.name
    given = {key: settings[key] for key in Storage.model_fields if key in settings}
    settings = {key: value for key, value in settings.items() if key not in given}
    try:
        storage = Storage.model_validate({"packed": is_uniform, **given})
    except ValidationError as error:
        raise ConfigError(f"{where}: {explain(error, Storage, 'a quantizer')}") from None
    if storage.searched:
        if not is_uniform:
            raise ConfigError(f"{where}: bpw and like are for mode uniform, whose step they find")
        if len({"step", "bpw", "like"} & (settings.keys() | given.keys())) > 1:
            raise ConfigError(f"{where}: give one of step, bpw and like")
        settings["step"] = START
    mode = make_mode(settings, where)
    hidden = {*hidden, *({"damping"} - settings.keys())}  # whose default depends on the rest
    of_inputs = ("calibration", "imatrix", "damping", "sequential", "sensitivity")
    one = Quantizer(
        mode=mode,
        storage=storage,
        calibration=_reference(mode, "calibration", where, calibrations),
        imatrix=_reference(mode, "imatrix", where, calibrations),
        label=_label(mode, storage, hidden),
        alike=_label(mode, storage, {*hidden, *of_inputs}),
    )
    _check(one, where)
    return one


def _reference(mode: Mode, key: str, where: str, calibrations: Collection[str]) -> Reference | None:
    path = getattr(mode, key)
    if path is None or path.is_file():
        return None
    name = str(path).removeprefix(DIAGONAL)
    if name in calibrations:
        diagonal = key == "imatrix" or str(path).startswith(DIAGONAL)
        return Reference(name, "imatrix" if diagonal else "moments")
    known = ", ".join(calibrations) or "it has none"
    close = difflib.get_close_matches(name, calibrations, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ConfigError(
        f"{where}: {key}: {str(path)!r} is neither a file nor a [[calibration]] of the study ({known}){hint}"
    )


def _check(one: Quantizer, where: str) -> None:
    mode = one.mode
    if mode.calibration and mode.imatrix:
        raise ConfigError(f"{where}: imatrix: a calibration holds one; give either imatrix or calibration")
    if one.table_per is not None and (
        not isinstance(mode, TableSearch) or one.table_per not in get_args(Per)
    ):
        choices = ", ".join(LEARNED + per for per in get_args(Per))
        raise ConfigError(f"{where}: table: mode table takes {choices}, or a TOML file, got {mode.table!r}")
    if one.measured and one.calibration is None:
        raise ConfigError(
            f"{where}: sensitivity: measured on the text of a calibration of the study, and "
            f"{str(mode.calibration)!r} is none"
        )
    if one.storage.like is not None:
        make_mode({"mode": f"ggml:{one.storage.like}"}, f"{where}: like")


def _label(mode: Mode, storage: Storage, hidden: Collection[str]) -> str:
    parts = [mode.mode]
    found = mode.model_dump(exclude={"mode", *hidden}, exclude_defaults=True)
    if storage.searched:
        del found["step"]
    for key, value in found.items():
        if key in FILES:
            value = Path(value).stem
        bare = key in type(mode).model_fields and key not in {*Mode.model_fields, *NAMED}
        parts.append(str(value) if bare else key if value is True else f"{key}={value}")
    parts += [f"{storage.bpw:g} bits"] if storage.bpw else []
    parts += [f"like {storage.like}"] if storage.like else []
    return " ".join([*parts, "packed"] if storage.packed and mode.mode != Uniform.name else parts)
