"""The TOML that describes a study, and the quantizers that its matrix stands for."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pyquant.config import explain, make_mode
from pyquant.errors import ConfigError
from pyquant.schemes import Mode
from pyquant.toml_file import read_toml

Measure = Literal["codes", "size", "quality", "speed"]
FILES = ("table", "imatrix", "calibration", "sensitivity")  # keys of a quantizer that may name a file


class SpeedConfig(BaseModel):
    """What is run to measure speed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: int = Field(512, ge=1, description="tokens of prompt processing")
    generate: int = Field(128, ge=1, description="tokens of generation")
    rounds: int = Field(5, ge=1, description="times that every model is run, in turn with the others")


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
    quantizer: list[dict[str, Any]] = Field(min_length=1, description="modes and their parameters")

    def modes(self) -> list[Mode]:
        """Every combination of the lists in every quantizer, in the file's order, each once."""
        modes: dict[Mode, None] = {}
        for i, settings in enumerate(self.quantizer, 1):
            axes = [value if isinstance(value, list) else [value] for value in settings.values()]
            for values in itertools.product(*axes):
                modes[make_mode(dict(zip(settings, values)), f"quantizer {i}")] = None
        return list(modes)


def read_study(
    path: Path, *, models: Sequence[Path] = (), texts: Sequence[Path] = (), **overrides: Any
) -> StudyConfig:
    """The study in a TOML file, paths in it relative to it.

    models, texts: more of them. overrides: keys given elsewhere; None leaves what the file says.
    Raises ConfigError, which names an unknown key and the nearest known one.
    """
    settings = read_toml(path, "configuration")
    for key, more in (("models", models), ("texts", texts)):
        names = settings.get(key, [])
        if isinstance(names, list):
            settings[key] = [path.parent / one if isinstance(one, str) else one for one in names] + [*more]
    quantizers = settings.get("quantizer")
    for quantizer in quantizers if isinstance(quantizers, list) else []:
        for key in FILES if isinstance(quantizer, dict) else ():
            if key in quantizer:
                quantizer[key] = _beside(path, quantizer[key])
    settings |= {key: value for key, value in overrides.items() if value is not None}
    try:
        study = StudyConfig.model_validate(settings)
        study.modes()
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


def _beside(path: Path, value: Any) -> Any:
    if isinstance(value, list):
        return [_beside(path, one) for one in value]
    return str(path.parent / value) if isinstance(value, str) and (path.parent / value).is_file() else value


def label(mode: Mode) -> str:
    """A quantizer's name in tables and figures: its mode, and what is not as usual."""
    parts = [mode.mode]
    for key, value in mode.model_dump(exclude={"mode", "threads"}, exclude_defaults=True).items():
        if key in FILES:
            value = Path(value).stem
        bare = key in type(mode).model_fields and key not in Mode.model_fields
        parts.append(str(value) if bare else key if value is True else f"{key}={value}")
    return " ".join(parts)
