"""Say how one tensor of a model differs from another model's."""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass
from typing import Any

from pyquant.formulas import cosine, rmse, snr_db


@dataclass(frozen=True)
class Sums:
    """Sums over weights x of the base and y of the model. They add up over tensors."""

    n_weights: int = 0  # weights that were compared
    squared_error: float = 0.0  # sums of (x - y)^2, x^2 and y^2
    squared_weight: float = 0.0
    squared_value: float = 0.0
    zeros: int = 0  # weights y that are 0
    # the sum of w, the importance of each weight's column; 0 without an importance matrix
    importance: float = 0.0
    weighted_squared_error: float = 0.0  # sums of w (x - y)^2 and w x^2; 0 without an importance matrix
    weighted_squared_weight: float = 0.0

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(a + b for a, b in zip(astuple(self), astuple(other))))

    @property
    def snr_db(self) -> float | None:
        """10 log10(sum x^2 / sum (x - y)^2); None where one of them is 0."""
        return snr_db(self.squared_weight, self.squared_error)

    @property
    def weighted_snr_db(self) -> float | None:
        """10 log10(sum w x^2 / sum w (x - y)^2); None where one of them is 0."""
        return snr_db(self.weighted_squared_weight, self.weighted_squared_error)

    def to_json(self) -> dict[str, Any]:
        """Give the measures that follow from the sums as JSON; None where a measure is not defined."""
        weighted = self.weighted_squared_error
        return {
            "n_weights": self.n_weights,
            "rmse": rmse(self.squared_error, self.n_weights) if self.n_weights else None,
            "snr_db": self.snr_db,
            "cosine": cosine(self.squared_weight, self.squared_value, self.squared_error),
            "zero_share": self.zeros / self.n_weights if self.n_weights else None,
            "weighted_rmse": rmse(weighted, self.importance) if self.importance else None,
            "weighted_snr_db": self.weighted_snr_db,
        }


@dataclass(frozen=True)
class TensorError:
    """Difference of one tensor of the model from the base's.

    Attributes
    ----------
    base_type, type
        In the base, and in the model.
    shape
        Lengths in GGML's order: the length of a row comes first.
    sums
        Over its weights.
    largest
        max |x - y|.
    largest_at
        Where that is, in the order of `shape`; None where nothing differs.
    entropy
        Of the model's codes, in bits per code; None where they are not countable.
    """

    name: str
    base_type: str
    type: str
    shape: tuple[int, ...]
    sums: Sums
    largest: float
    largest_at: list[int] | None
    entropy: float | None

    @property
    def identical(self) -> bool:
        """Say whether every weight is the same, whatever the types."""
        return self.largest == 0

    @property
    def kind(self) -> str:
        """Its role in the model, its name without its layer: attn_q of blk.3.attn_q.weight."""
        return re.sub(r"\bblk\.\d+\.|\.weight$", "", self.name)

    @property
    def layer(self) -> int | None:
        """The number of its layer, None outside of layers."""
        match = re.search(r"\bblk\.(\d+)\.", self.name)
        return int(match[1]) if match else None

    def to_json(self) -> dict[str, Any]:
        """Give the difference as JSON."""
        return {
            "name": self.name,
            "base_type": self.base_type,
            "type": self.type,
            "shape": list(self.shape),
            "identical": self.identical,
            **self.sums.to_json(),
            "largest_error": self.largest,
            "largest_error_at": self.largest_at,
            "entropy": self.entropy,
        }
