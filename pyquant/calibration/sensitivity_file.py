"""How much divergence an error in the outputs of each kind of tensor causes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyquant.errors import ConfigError
from pyquant.files.toml import read_toml
from pyquant.models.tensor_name import kind_of


@dataclass(frozen=True)
class Sensitivity:
    """by_kind: divergence per squared error of outputs, relative to one another; kinds that are not
    there count 1."""

    by_kind: Mapping[str, float] = field(default_factory=dict)

    def of(self, tensor: str) -> float:
        return self.by_kind.get(kind_of(tensor), 1.0)

    def to_toml(self) -> str:
        """As `read` reads it."""
        lines = [f"{json.dumps(kind)} = {value:.5g}" for kind, value in self.by_kind.items()]
        return "\n".join(["[sensitivity]", *lines]) + "\n"

    @classmethod
    def read(cls, path: Path) -> Sensitivity:
        """From TOML. Raises ConfigError, naming the file and the key."""
        content = read_toml(path, "sensitivity")
        by_kind = content.get("sensitivity")
        if set(content) != {"sensitivity"} or not isinstance(by_kind, dict):
            raise ConfigError(f"{path}: expected a table [sensitivity], as `pyquant sensitivity` writes it")
        for kind, value in by_kind.items():
            if not isinstance(value, int | float) or not 1e-6 <= value <= 1e6:
                raise ConfigError(f"{path}: {kind}: expected a number from 1e-6 to 1e6, got {value!r}")
        return cls({kind: float(value) for kind, value in by_kind.items()})
