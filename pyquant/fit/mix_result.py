"""Result of the search for a mixture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyquant.evaluate.speed import ModelSpeed
from pyquant.models.tensor_type import TensorType as Type
from pyquant.schemes.recipe_file import Recipe

Types = Mapping[str, Type]


@dataclass(frozen=True)
class Trial:
    """A mixture that was made and measured.

    Attributes
    ----------
    name
        "round 1", "round 2", or the name of a mixture of llama-quantize.
    types
        By tensor.
    n_bytes
        Size of the file.
    KLD, error
        Mean KLD per token from the model, and its standard error, in nats.
    """

    name: str
    types: Types
    n_bytes: int
    kld: float
    error: float

    def to_json(self) -> dict[str, Any]:
        """Return what was measured."""
        keys = ("name", "n_bytes", "kld", "error")
        return {key: getattr(self, key) for key in keys}


@dataclass(frozen=True)
class Mix:
    """The result.

    Attributes
    ----------
    recipe
        The types, for `pyquant quantize --recipe`.
    wanted_bytes
        What the file has at most.
    trials
        What was measured, in order.
    best
        The one that became the recipe.
    stock
        The mixture of llama-quantize that it was compared with; None where none fits.
    speed
        Of the best, as a ratio to the stock mixture's; None where that is the best, or there is none.
    gap
        By how much of itself the predicted KLD is above the least possible, at most.
    any_bits
        What would be left of the predicted KLD if there were types of any number of bits, as a share.
    seconds
        What each part of the work took.
    """

    recipe: Recipe
    wanted_bytes: int
    trials: list[Trial]
    best: Trial
    stock: Trial | None
    speed: ModelSpeed | None
    gap: float
    any_bits: float
    seconds: dict[str, float]

    @property
    def fell_back(self) -> bool:
        """Say whether the stock mixture is the best."""
        return self.best is self.stock

    def to_json(self) -> dict[str, Any]:
        """Return the result as `pyquant mix --json` prints it, schema pyquant.mix/1."""
        return {
            "schema": "pyquant.mix/1",
            "wanted_bytes": self.wanted_bytes,
            **self.best.to_json(),
            "stock": self.stock.to_json() if self.stock else None,
            "speed": {
                "prompt": self.speed.prompt.to_json(),
                "generation": self.speed.generation.to_json(),
            }
            if self.speed
            else None,
            "fell_back": self.fell_back,
            "trials": [trial.to_json() for trial in self.trials],
            "gap": self.gap,
            "any_bits": self.any_bits,
            "seconds": self.seconds,
            "tensors": {
                name: {
                    "type": choice.type.name,
                    "bits": choice.bits,
                    "share": choice.share,
                    "sensitivity": choice.sensitivity,
                }
                for name, choice in self.recipe.tensors.items()
            },
        }
