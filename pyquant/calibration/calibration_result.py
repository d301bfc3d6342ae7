"""What a calibration did."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pyquant.calibration.hessian_file import CalibrationText


@dataclass(frozen=True)
class CalibrationResult:
    """Result of a calibration.

    Attributes
    ----------
    model, output
        Paths.
    sha256
        The hash of the model.
    texts
        What the model was run over.
    n_ctx, n_tokens
        Tokens in a chunk, and of all chunks.
    n_matrices, n_inputs
        Matrices whose inputs were collected, and the inputs that they share.
    left_out
        Matrices whose inputs are not finite, or so large that their squares are not.
    sums_bytes
        The size of the sums, in memory or spooled.
    output_bytes
        The size of `output`.
    resumed_at
        The batch where an interrupted run was taken up, or 0.
    seconds
        What running took, loading excluded.
    copying_seconds, waiting_seconds
        How long of that passes on a GPU stood still for copies of activations to the CPU, and for sums: of
        copies before, or on the GPU.
    """

    model: str
    output: str
    sha256: str
    texts: list[CalibrationText]
    n_ctx: int
    n_tokens: int
    n_matrices: int
    n_inputs: int
    left_out: list[str]
    sums_bytes: int
    output_bytes: int
    resumed_at: int
    seconds: float
    copying_seconds: float
    waiting_seconds: float

    def to_json(self) -> dict[str, Any]:
        """Give the result as `pyquant calibrate --json` prints it, schema pyquant.calibrate/1."""
        return {"schema": "pyquant.calibrate/1", **asdict(self)}
