"""Say what a quantization did: sizes, errors, types that tensors fell back to, what GPTQ left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyquant.formulas import bits_per_weight, rmse, snr_db
from pyquant.models.tensor import UNQUANTIZED
from pyquant.models.tensor_type import TensorType as Type


@dataclass(frozen=True)
class TensorResult:
    """Result for a tensor.

    Attributes
    ----------
    source_type, type
        Before and after.
    n_weights
        Weights in it.
    n_bytes
        The size of what it became.
    squared_error, squared_weight
        Sums over the weights that were rounded, which equalization and error propagation had changed, in
        squared units of weights; None where they were only copied.
    zeros
        Weights that decode to 0; None where they were only copied.
    fell_back_from
        The type it would have got if that type's blocks divided its rows; None if it got that.
    without_gptq
        Why it is not rounded by GPTQ though Hessians were given; None where they are, or there
        is no error to feed back.
    """

    name: str
    source_type: str
    type: str
    n_weights: int
    n_bytes: int
    squared_error: float | None = None
    squared_weight: float | None = None
    zeros: int | None = None
    fell_back_from: str | None = None
    without_gptq: str | None = None

    @property
    def quantized(self) -> bool:
        """Say whether it got another type."""
        return self.type != self.source_type

    @property
    def requantized(self) -> bool:
        """Say whether it was quantized already, and is again."""
        types = Type[self.source_type], Type[self.type]
        return self.quantized and not any(type_ in UNQUANTIZED for type_ in types)

    def to_json(self) -> dict[str, Any]:
        """Give the result as JSON."""
        return {
            "name": self.name,
            "source_type": self.source_type,
            "type": self.type,
            "n_weights": self.n_weights,
            "n_bytes": self.n_bytes,
            **errors_of([self]),
            "requantized": self.requantized,
            "fell_back_from": self.fell_back_from,
            "without_gptq": self.without_gptq,
        }


def errors_of(tensors: Iterable[TensorResult]) -> dict[str, float | None]:
    """Sum up the errors of tensors.

    Returns: rmse, in units of weights; snr_db, in dB; zero_share, of the weights that were not copied. None
    where nothing was measured.
    """
    n_weights, zeros, squared_error, squared_weight = 0, 0, 0.0, 0.0
    for tensor in tensors:
        if (
            tensor.squared_error is not None
            and tensor.squared_weight is not None
            and tensor.zeros is not None
        ):
            n_weights += tensor.n_weights
            zeros += tensor.zeros
            squared_error += tensor.squared_error
            squared_weight += tensor.squared_weight
    if not n_weights:
        return {"rmse": None, "snr_db": None, "zero_share": None}
    return {
        "rmse": rmse(squared_error, n_weights),
        "snr_db": snr_db(squared_weight, squared_error),
        "zero_share": zeros / n_weights,
    }


@dataclass(frozen=True)
class QuantizeResult:
    """Result of a quantization; of a dry run, what it would do.

    Attributes
    ----------
    source, output
        Paths; of shards that of the first.
    files
        The output, or all of its shards.
    mode, parameters
        How it was done: the mode's name, and what the file's metadata say of its parameters.
    source_bytes, output_bytes
        Sizes of whole files.
    n_weights
        Weights of the model.
    seconds
        What it took.
    tensors
        By layer and name.
    """

    source: str
    output: str
    files: list[str]
    mode: str
    parameters: dict[str, str | int]
    source_bytes: int
    output_bytes: int
    n_weights: int
    seconds: float
    tensors: list[TensorResult]

    @property
    def bits_per_weight(self) -> float | None:
        """Bits of the whole file; None for no weights."""
        return bits_per_weight(self.output_bytes, self.n_weights)

    @property
    def fallbacks(self) -> list[TensorResult]:
        """The tensors whose rows the blocks of the wanted type do not divide, and which got another."""
        return [tensor for tensor in self.tensors if tensor.fell_back_from]

    @property
    def without_gptq(self) -> dict[str, str]:
        """The quantized tensors that are not rounded by GPTQ though Hessians were given, and why."""
        return {tensor.name: tensor.without_gptq for tensor in self.tensors if tensor.without_gptq}

    def to_json(self) -> dict[str, Any]:
        """Give the result as `pyquant quantize --json` prints it, schema pyquant.quantize/1."""
        return {
            "schema": "pyquant.quantize/1",
            "source": self.source,
            "output": self.output,
            "files": self.files,
            "mode": self.mode,
            "parameters": self.parameters,
            "source_bytes": self.source_bytes,
            "output_bytes": self.output_bytes,
            "bits_per_weight": self.bits_per_weight,
            "n_weights": self.n_weights,
            "n_quantized": sum(t.n_weights for t in self.tensors if t.quantized),
            **errors_of(self.tensors),
            "seconds": self.seconds,
            "tensors": [tensor.to_json() for tensor in self.tensors],
        }
