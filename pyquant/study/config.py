"""The TOML that describes a study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pyquant.calibration.random_tokens import RANDOM_SHARE
from pyquant.errors import ConfigError
from pyquant.files.toml import read_toml
from pyquant.schemes.settings import explain
from pyquant.study.quantizer import FILES, Quantizer, make_quantizers

Measure = Literal["codes", "size", "quality", "speed"]


class SpeedConfig(BaseModel):
    """What is run to measure speed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: int = Field(512, ge=1, description="tokens of prompt processing")
    generate: int = Field(128, ge=1, description="tokens of generation")
    rounds: int = Field(5, ge=1, description="times that every model is run, in turn with the others")


class CalibrationConfig(BaseModel):
    """What models are run over to see what enters their matrices."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, description="what quantizers call it")
    texts: list[Path] = Field([], description="UTF-8 texts")
    weights: list[float] | None = Field(None, description="how much each text's tokens count")
    ctx: int | None = Field(
        None, ge=16, description="tokens in a chunk; 512, or what the model was trained with, if left out"
    )
    chunks: int | None = Field(None, ge=1, description="chunks of each text; all, if left out")
    random: float = Field(RANDOM_SHARE, ge=0, lt=1, description="share of random tokens in moments")


class StudyConfig(BaseModel):
    """A study: quantizers, measured on models and texts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = Field("A study of quantizers", description="the report's heading")
    question: str = Field("", description="what the study is to answer, the report's first paragraph")
    models: list[Path] = Field([], description="GGUF models, F32, F16 or BF16")
    texts: list[Path] = Field([], description="UTF-8 texts to evaluate on")
    measure: list[Measure] = Field(
        ["codes", "size", "quality", "speed"], min_length=1, description="what is measured"
    )
    ctx: int = Field(512, ge=8, description="tokens in a chunk")
    chunks: int | None = Field(None, ge=1, description="chunks of each text; all, if left out")
    together: int | None = Field(
        None, ge=1, description="quantized models compared in one pass of the base; all, if left out"
    )
    speed: SpeedConfig = Field(SpeedConfig(), description="how speed is measured")
    calibration: list[CalibrationConfig] = Field([], description="what quantizers may know of inputs")
    common: dict[str, Any] = Field({}, description="settings of every quantizer")
    quantizer: list[dict[str, Any]] = Field(min_length=1, description="modes and their parameters")

    def quantizers(self) -> list[Quantizer]:
        """Every combination of the lists in every quantizer, in the file's order, each once.

        Raises ConfigError, also where a calibration that one needs has no text.
        """
        calibrations = {one.name: one for one in self.calibration}
        if len(calibrations) < len(self.calibration):
            raise ConfigError("calibration: two have the same name")
        found = make_quantizers(self.quantizer, self.common, calibrations)
        for one in found:
            if one.information:
                _check_texts(calibrations[one.information.name])
            if one.storage.like is not None and not (self.texts and "quality" in self.measure):
                raise ConfigError("like: needs quality to be measured, as it is on the first of texts")
        return found


def _check_texts(calibration: CalibrationConfig) -> None:
    name, n_texts = calibration.name, len(calibration.texts)
    if not n_texts:
        raise ConfigError(
            f"calibration {name}: texts: none are given; --calibration-text {name}=FILE adds one"
        )
    if calibration.weights is not None and len(calibration.weights) != n_texts:
        raise ConfigError(
            f"calibration {name}: weights: {len(calibration.weights)} for {n_texts} texts; give one for each"
        )


def read_study(
    path: Path,
    *,
    models: Sequence[Path] = (),
    texts: Sequence[Path] = (),
    calibration_texts: Sequence[tuple[str, Path]] = (),
    **overrides: Any,
) -> StudyConfig:
    """The study in a TOML file, paths in it relative to it.

    models, texts: more of them. calibration_texts: more of each calibration's, by its name. overrides:
    keys given elsewhere; None leaves what the file says.
    Raises ConfigError, which names an unknown key and the nearest known one.
    """
    settings = read_toml(path, "configuration")
    _add_paths(settings, "models", path.parent, models)
    _add_paths(settings, "texts", path.parent, texts)
    calibrations = _tables(settings.get("calibration"))
    for calibration in calibrations:
        name = calibration.get("name")
        more = [text for wanted, text in calibration_texts if wanted == name]
        _add_paths(calibration, "texts", path.parent, more)
    names = [calibration.get("name") for calibration in calibrations]
    for name in {name for name, _ in calibration_texts} - set(names):
        raise ConfigError(f"{path}: calibration: there is none called {name!r}; there are: {names}")
    for quantizer in [*_tables(settings.get("quantizer")), *_tables([settings.get("common")])]:
        for key in FILES:
            if key in quantizer:
                quantizer[key] = _beside(path, quantizer[key])
    settings |= {key: value for key, value in overrides.items() if value is not None}
    try:
        study = StudyConfig.model_validate(settings)
        study.quantizers()
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, StudyConfig, 'a study')}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if not study.models:
        raise ConfigError(f"{path}: models: none are given; --model MODEL.gguf adds one")
    if not study.texts and "quality" in study.measure:
        raise ConfigError(
            f"{path}: texts: none are given, and quality is measured on one; --text FILE adds one"
        )
    return study


def _tables(value: Any) -> list[dict[str, Any]]:
    # What is not as it should be, validation explains.
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _add_paths(settings: dict[str, Any], key: str, folder: Path, more: Sequence[Path]) -> None:
    names = settings.get(key, [])
    if isinstance(names, list):
        settings[key] = [folder / one if isinstance(one, str) else one for one in names] + [*more]


def _beside(path: Path, value: Any) -> Any:
    if isinstance(value, list):
        return [_beside(path, one) for one in value]
    return str(path.parent / value) if isinstance(value, str) and (path.parent / value).is_file() else value
