"""Read and write how much KLD an error in the outputs of each tensor causes."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyquant.errors import ConfigError
from pyquant.files.toml import read_toml, toml_string
from pyquant.models.tensor_name import kind_of

LEAST, MOST = 1e-12, 1e12


@dataclass(frozen=True)
class OfTensor:
    """Sensitivity of one tensor. All tensors of a file are relative to one another.

    Attributes
    ----------
    sensitivity
        What steps are chosen by: the measurement, drawn towards its neighbors as far as it is uncertain.
    measured
        KLD per squared error of outputs.
    error
        The standard error of the measurement, as a share of it.
    """

    sensitivity: float
    measured: float
    error: float


@dataclass(frozen=True)
class Sensitivity:
    """Sensitivities of a model's tensors: how much KLD errors in them cause.

    Attributes
    ----------
    by_kind
        KLD per squared error of outputs, by kind of tensor, relative to one another.
    by_tensor
        The same by tensor.
    """

    by_kind: Mapping[str, float] = field(default_factory=dict)
    by_tensor: Mapping[str, OfTensor] = field(default_factory=dict)

    def of(self, tensor: str) -> float:
        """Give the sensitivity of a tensor, by its name.

        A tensor that was not measured has the geometric mean of its kind; where there is none, 1.
        """
        if tensor in self.by_tensor:
            return self.by_tensor[tensor].sensitivity
        kind = kind_of(tensor)
        alike = [math.log(of.sensitivity) for name, of in self.by_tensor.items() if kind_of(name) == kind]
        return math.exp(sum(alike) / len(alike)) if alike else self.by_kind.get(kind, 1.0)

    def to_toml(self) -> str:
        """Write the text that `read` reads."""
        if self.by_kind:
            kinds = [f"{toml_string(kind)} = {value:.5g}" for kind, value in self.by_kind.items()]
            return "\n".join(["[sensitivity]", *kinds]) + "\n"
        tensors = [
            f"{toml_string(name)} = {{ sensitivity = {of.sensitivity:.5g}, measured = {of.measured:.5g}, "
            f"error = {of.error:.3g} }}"
            for name, of in self.by_tensor.items()
        ]
        return "\n".join(["version = 2", "", "[tensors]", *tensors]) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Give the sensitivities as JSON, schema pyquant.sensitivity/2."""
        by_tensor = {name: asdict(of) for name, of in self.by_tensor.items()}
        return {"schema": "pyquant.sensitivity/2", "by_tensor": by_tensor}

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Sensitivity:
        """Read sensitivities from TOML: of tensors, or of kinds of tensors as version 1 had them.

        Raises
        ------
        ConfigError
            The file is missing, or a key in it is wrong. The message names file and key.
        """
        path = Path(path)
        content = read_toml(path, "sensitivity")
        if set(content) == {"sensitivity"} and isinstance(content["sensitivity"], dict):
            return cls({kind: _number(path, kind, value) for kind, value in content["sensitivity"].items()})
        tensors = content.get("tensors")
        if set(content) != {"version", "tensors"} or not isinstance(tensors, dict):
            raise ConfigError(f"{path}: expected a table [tensors], as `pyquant sensitivity` writes it")
        if content["version"] != 2:
            raise ConfigError(f"{path}: version {content['version']!r}, this pyquant reads 2")
        return cls(by_tensor={name: _of_tensor(path, name, entry) for name, entry in tensors.items()})


def _of_tensor(path: Path, name: str, entry: Any) -> OfTensor:
    keys = ("sensitivity", "measured", "error")
    if not isinstance(entry, dict) or set(entry) != set(keys):
        raise ConfigError(f"{path}: {name}: expected {', '.join(keys)}")
    sensitivity, measured = (_number(path, f"{name}: {key}", entry[key]) for key in keys[:2])
    return OfTensor(sensitivity, measured, _number(path, f"{name}: error", entry["error"], least=0))


def _number(path: Path, name: str, value: Any, least: float = LEAST) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not least <= value <= MOST:
        raise ConfigError(f"{path}: {name}: expected a number from {least:g} to {MOST:g}, got {value!r}")
    return float(value)
