"""What came of quantizing a model by a method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyquant.evaluate.comparison import Comparison
from pyquant.fit.method.forecast import Forecast
from pyquant.fit.method.stages import Tried


@dataclass(frozen=True)
class Quantized:
    """A file made by a method.

    Attributes
    ----------
    method
        One of `METHODS`.
    result
        What `quantize_model` says of the file, as JSON.
    mix
        The mix of types, as `Mix.to_json` gives it, where "gptq" or "best" made a file of a size; else None.
    stages
        What was tried, and what of it the file has; empty for "rtn".
    statistics
        The Hessian statistics that it was made with; None where none were kept.
    evaluation
        The file, and of "gptq" and "best" llama-quantize's with an imatrix of the same texts, beside the
        model; None without `evaluate`.
    forecast
        What was expected before the work; None for "rtn".
    seconds
        What it took, calibration included.
    """

    method: str
    result: dict[str, Any]
    mix: dict[str, Any] | None
    stages: list[Tried]
    statistics: str | None
    evaluation: Comparison | None
    forecast: Forecast | None = None
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Give the result as `pyquant quantize --json` prints it."""
        return {
            **self.result,
            "method": self.method,
            "mix": self.mix,
            "stages": [stage.to_json() for stage in self.stages],
            "forecast": self.forecast.to_json() if self.forecast else None,
            "statistics": self.statistics,
            "evaluation": self.evaluation.to_json() if self.evaluation else None,
            "seconds": self.seconds,
        }
