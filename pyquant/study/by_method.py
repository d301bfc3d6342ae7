"""Quantizers of a study by a method that calibrates: what `pyquant quantize MODEL OUT TYPE --method` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyquant.errors import ConfigError, did_you_mean
from pyquant.fit.method.split_text import N_CHUNKS
from pyquant.fit.method.stages import BY_GPTQ, HIGH, NORMAL, Effort, MethodName
from pyquant.study.calibration_config import CalibrationConfig
from pyquant.study.quantizer_keys import OfStudies

DEFAULT_TEXTS = "default texts"  # the name of a calibration where none is named
DECIDED = ("weights", "random", "process_output", "output_side")  # keys of calibrations: by the method itself


@dataclass(frozen=True)
class ByMethod:
    """A method, and what it calibrates on.

    calibration: of the study; None: default texts, as many as the model's width asks for.
    """

    name: MethodName
    effort: Effort
    calibration: CalibrationConfig | None

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of `pyquant.quantize`."""
        options: dict[str, Any] = {"method": self.name, "effort": self.effort}
        if (given := self.calibration) is not None:
            texts = [path.absolute() for path in given.texts] or None
            options |= {"text": texts, "n_ctx": given.ctx, "n_chunks": given.chunks}
        return options

    @property
    def n_chunks(self) -> int:
        """Chunks to calibrate on: an estimate where the model's width decides."""
        return (self.calibration and self.calibration.chunks) or N_CHUNKS

    @property
    def knows(self) -> dict[str, str]:
        """The name of its texts, and how they are used, as `Quantizer.knows` has it."""
        name = self.calibration.name if self.calibration else DEFAULT_TEXTS
        return {"name": name, "how": self.name}


def by_method(keys: OfStudies, calibrations: Mapping[str, CalibrationConfig]) -> ByMethod | None:
    """Make one; None where nothing calibrates. Raises ConfigError."""
    method, calibration, effort = keys.method, keys.calibration, keys.effort or NORMAL
    if method is None or method == "rtn":
        return None
    if effort == HIGH and method not in BY_GPTQ:
        raise ConfigError(f"effort: gptq and best train scales, {method} does not")
    if calibration is None:
        return ByMethod(method, effort, None)
    if (found := calibrations.get(calibration)) is None:
        hint = did_you_mean(calibration, calibrations)
        raise ConfigError(f"calibration: the study has no [[calibration]] called {calibration!r}{hint}")
    for key in DECIDED:
        if getattr(found, key) != CalibrationConfig.model_fields[key].default:
            raise ConfigError(f"calibration {calibration}: {key}: method {method} decides that itself")
    return ByMethod(method, effort, found)
