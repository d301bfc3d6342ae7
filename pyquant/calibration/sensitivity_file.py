"""Read and write how much divergence an error in the outputs of each kind of tensor causes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyquant.errors import ConfigError
from pyquant.files.toml import read_toml
from pyquant.models.tensor_name import kind_of


@dataclass(frozen=True)
class Sensitivity:
    """How much divergence errors in each kind of tensor cause.

    Attributes
    ----------
    by_kind
        Divergence per squared error of outputs, by kind of tensor, relative to one another. Other kinds
        count 1.
    """

    by_kind: Mapping[str, float] = field(default_factory=dict)

    def of(self, tensor: str) -> float:
        """Give the sensitivity of a tensor, by its name."""
        return self.by_kind.get(kind_of(tensor), 1.0)

    def to_toml(self) -> str:
        """Write the text that `read` reads."""
        lines = [f"{json.dumps(kind)} = {value:.5g}" for kind, value in self.by_kind.items()]
        return "\n".join(["[sensitivity]", *lines]) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Give the sensitivities as JSON, schema pyquant.sensitivity/1."""
        return {"schema": "pyquant.sensitivity/1", "by_kind": dict(self.by_kind)}

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Sensitivity:
        """Read sensitivities from TOML.

        Raises
        ------
        ConfigError
            The file is missing, or a key in it is wrong. The message names file and key.
        """
        path = Path(path)
        content = read_toml(path, "sensitivity")
        by_kind = content.get("sensitivity")
        if set(content) != {"sensitivity"} or not isinstance(by_kind, dict):
            raise ConfigError(f"{path}: expected a table [sensitivity], as `pyquant sensitivity` writes it")
        for kind, value in by_kind.items():
            if not isinstance(value, int | float) or not 1e-6 <= value <= 1e6:
                raise ConfigError(f"{path}: {kind}: expected a number from 1e-6 to 1e6, got {value!r}")
        return cls({kind: float(value) for kind, value in by_kind.items()})
