"""The TOML that describes a study."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
)

from pyquant import limits
from pyquant.errors import ConfigError
from pyquant.files.toml import read_toml
from pyquant.llama.cache_types import CacheTypes
from pyquant.schemes import Mode
from pyquant.schemes.outside import load_modes
from pyquant.schemes.settings import explain
from pyquant.study.calibration_config import CalibrationConfig
from pyquant.study.metrics import MEASURABLE, Metric
from pyquant.study.quantizer import FILES, Quantizer, make_quantizers
from pyquant.study.study_text import NamedFile

DEFAULT = [metric.name for metric in MEASURABLE if metric.by_default]
# A TOML table for each metric that has settings, by the metric's name.
_SETTINGS: dict[str, Any] = {
    metric.name: (metric.settings, Field(metric.settings(), description=metric.settings.__doc__))
    for metric in MEASURABLE
    if metric.settings
}
_MetricSettings: Any = create_model("_MetricSettings", **_SETTINGS)


def _known_metric(name: str) -> str:
    names = [metric.name for metric in MEASURABLE]
    if name not in names:
        raise ValueError(f"choices: {', '.join(map(repr, names))}")
    return name


Measure = Annotated[str, AfterValidator(_known_metric)]


class TextFile(BaseModel):
    """A file of text, and what results call it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Path = Field(description="the file")
    name: str | None = Field(None, min_length=1, description="its name; that of the file, if left out")


def _cache_types(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return CacheTypes.read(value)
    except ConfigError as error:
        raise ValueError(str(error)) from None


class StudyConfig(_MetricSettings):
    """A study: quantizers, measured on models and texts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = Field("A study of quantizers", description="the report's heading")
    question: str = Field("", description="what the study is to answer, the report's first paragraph")
    models: list[Path] = Field([], description="GGUF models, F32, F16 or BF16")
    texts: list[TextFile] = Field([], description="UTF-8 texts to evaluate on")
    chats: list[TextFile] = Field(
        [], description="conversations to evaluate on, as `compare --chat` has them"
    )
    bundled: bool = Field(False, description="evaluates on pyquant's texts too, and on the base's answers")
    caches: list[Annotated[CacheTypes, BeforeValidator(_cache_types)]] = Field(
        [], description="types of a cache, such as 'q8_0/q4_0', that all models are run with too"
    )
    scheme: Path | None = Field(None, description="a Python file that defines modes")
    measure: list[Measure] = Field(DEFAULT, min_length=1, description="metrics")
    ctx: Annotated[int, limits.CTX.interval] = Field(512, description="tokens in a chunk")
    chunks: Annotated[int, limits.CHUNKS.interval] | None = Field(
        None, description="chunks of each text; all, if left out"
    )
    together: int | None = Field(
        None, ge=1, description="quantized models compared in one pass of the base; all, if left out"
    )
    calibration: list[CalibrationConfig] = Field([], description="what quantizers may know of inputs")
    common: dict[str, Any] = Field({}, description="settings of every quantizer")
    quantizer: list[dict[str, Any]] = Field(min_length=1, description="modes and their parameters")

    @property
    def metrics(self) -> list[Metric]:
        """Metrics that are measured, in the order in which it is best done."""
        return [metric for metric in MEASURABLE if metric.name in self.measure]

    def settings_of(self, metric: str) -> Any:
        """Return the settings of a metric, by its name."""
        return getattr(self, metric)

    @property
    def needs_texts(self) -> bool:
        """Say whether a metric is measured on texts."""
        return any(metric.unit == "text" for metric in self.metrics)

    @property
    def has_texts(self) -> bool:
        """Say whether there is a text to evaluate on."""
        return bool(self.texts or self.chats or self.bundled)

    def quantizers(self) -> list[Quantizer]:
        """Make every combination of the lists in every quantizer, in the file's order, each once.

        Raises
        ------
        ConfigError
            A quantizer is wrong, or a calibration that it needs has no text.
        """
        calibrations = {calibration.name: calibration for calibration in self.calibration}
        if len(calibrations) < len(self.calibration):
            raise ConfigError("calibration: two have the same name")
        made = make_quantizers(self.quantizer, self.common, calibrations)
        for quantizer in made:
            if quantizer.information:
                calibrations[quantizer.information.name].check_texts()
            if quantizer.needs_evaluation and not (self.texts and self.needs_texts):
                raise ConfigError("like: needs a metric that is measured on texts; it is met on the first")
        return made


def read_study(
    path: str | os.PathLike[str],
    *,
    models: Sequence[Path] = (),
    texts: Sequence[Path | NamedFile] = (),
    chats: Sequence[Path | NamedFile] = (),
    calibration_texts: Sequence[tuple[str, Path]] = (),
    samples: int | None = None,
    **overrides: Any,
) -> StudyConfig:
    """Read a study from a TOML file.

    Parameters
    ----------
    path
        The file. Paths in it are relative to it.
    models, texts, chats
        More models, texts and conversations than the file names; texts with a name or by that of their file.
    calibration_texts
        More texts for calibrations: name of the calibration, and file.
    samples
        Samples of each metric that has such a setting; None leaves what the file says.
    **overrides
        Keys that are given elsewhere; None leaves what the file says.

    Raises
    ------
    ConfigError
        The file is not a study. The message names an unknown key and the nearest known one.
    """
    path = Path(path)
    settings = read_toml(path, "configuration")
    _add_paths(settings, "models", path.parent, models)
    _add_texts(settings, "texts", path.parent, texts)
    _add_texts(settings, "chats", path.parent, chats)
    calibrations = _tables(settings.get("calibration"))
    for calibration in calibrations:
        name = calibration.get("name")
        more = [text for wanted, text in calibration_texts if wanted == name]
        _add_paths(calibration, "texts", path.parent, more)
    names = [calibration.get("name") for calibration in calibrations]
    for name in [name for name, _ in calibration_texts if name not in names]:
        raise ConfigError(f"{path}: calibration: there is none called {name!r}; there are: {names}")
    settings |= {key: value for key, value in overrides.items() if value is not None}
    for metric in MEASURABLE:
        if isinstance(settings.get(metric.name), dict):
            metric.place(settings[metric.name], path.parent)
    if samples is not None:
        _set_samples(settings, samples)
    if isinstance(settings.get("scheme"), str):
        settings["scheme"] = path.parent / settings["scheme"]
    try:
        study = StudyConfig.model_validate(settings)
        if study.scheme is not None:
            load_modes(study.scheme)
        _place_files(study, path.parent.absolute())
        study.quantizers()
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, StudyConfig, 'a study')}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if not study.models:
        raise ConfigError(f"{path}: models: none are given; --model MODEL.gguf adds one")
    if not study.has_texts and study.needs_texts:
        on_texts = ", ".join(metric.name for metric in study.metrics if metric.unit == "text")
        raise ConfigError(
            f"{path}: texts: none are given, and {on_texts} is measured on one; --text FILE adds one"
        )
    return study


def _set_samples(settings: dict[str, Any], samples: int) -> None:
    for metric in MEASURABLE:
        has_samples = metric.settings is not None and "samples" in metric.settings.model_fields
        if has_samples and isinstance(settings.get(metric.name, {}), dict):
            settings[metric.name] = {**settings.get(metric.name, {}), "samples": samples}


def _tables(value: Any) -> list[dict[str, Any]]:
    # Validation explains what is not as it should be.
    return [table for table in value if isinstance(table, dict)] if isinstance(value, list) else []


def _add_paths(settings: dict[str, Any], key: str, folder: Path, more: Sequence[Path]) -> None:
    names = settings.get(key, [])
    if isinstance(names, list):
        settings[key] = [folder / name if isinstance(name, str) else name for name in names] + [*more]


def _add_texts(settings: dict[str, Any], key: str, folder: Path, more: Sequence[Path | NamedFile]) -> None:
    """Read a list of files, or a table of files by name."""
    files = settings.get(key, [])
    if isinstance(files, (list, dict)):
        named = files.items() if isinstance(files, dict) else [(None, file) for file in files]
        settings[key] = [_beside(folder, name, file) for name, file in named]
        pairs = [(None, file) if isinstance(file, Path) else file for file in more]
        settings[key] += [{"path": file, "name": name} for name, file in pairs]


def _beside(folder: Path, name: str | None, file: Any) -> Any:
    if isinstance(file, str):
        return {"path": folder / file, "name": name}
    if isinstance(file, dict) and isinstance(file.get("path"), str):
        return {"name": name, **file, "path": folder / file["path"]}
    return file


def _place_files(study: StudyConfig, folder: Path) -> None:
    """Make names of files in a folder absolute where quantizers have them: models are made in another one."""
    fields = [field for mode in Mode.registry.values() for field in mode.model_fields.items()]
    paths = {key for key, field in fields if Path in (field.annotation, *get_args(field.annotation))}
    names = [calibration.name for calibration in study.calibration]

    def placed(value: Any, may_be_file: bool) -> Any:
        if isinstance(value, list):
            return [placed(one, may_be_file) for one in value]
        if not isinstance(value, str) or value in names or not (may_be_file or value.endswith(".toml")):
            return value
        beside = folder / value
        return str(beside) if os.path.isfile(beside) else value  # is_file() fails where a name is too long

    for quantizer in [*study.quantizer, study.common]:
        for key, value in quantizer.items():
            quantizer[key] = placed(value, key in FILES or key in paths)
