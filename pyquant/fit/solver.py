"""Predict the KLD that types of tensors cause, and find the types of the least within a size."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from pyquant.fit.allocate import Item, allocate
from pyquant.fit.any_bits import cost_with_any_bits
from pyquant.fit.mixtures import Files, Mixture, refuse_size
from pyquant.fit.type_errors import TypeErrors
from pyquant.models.tensor_name import kind_of
from pyquant.models.tensor_type import TensorType as Type

Types = Mapping[str, Type]


@dataclass(frozen=True)
class Solution:
    """Types, and what is predicted of them.

    gap: by how much of itself their predicted KLD is above the least possible, at most.
    any_bits: what of it would be left if there were types of any number of bits, as a share.
    """

    types: Types
    gap: float
    any_bits: float


@dataclass
class Solver:
    """Finds types."""

    files: Files  # knows what files take
    options: Mapping[str, Sequence[Type]]  # the types that each tensor may get, fewest bits first
    # mixtures of llama-quantize that fit; none of them is predicted to be better than what is found
    stock: Sequence[Mixture]
    base: str  # the mixture that recipes name
    # gives how much KLD a tensor's errors cause; None: unknown, and the tensor does not count
    sensitivity: Callable[[str], float | None]
    errors: TypeErrors  # what each type does to each tensor
    # Factors on predictions, by kind; where there are some, other kinds have the median of these.
    factors: Mapping[str, float] = field(default_factory=dict)

    def cost(self, name: str, type_: Type) -> float:
        """Predict the KLD that a tensor causes in a type; in nats where `factors` are."""
        sensitivity = self.sensitivity(name)
        if sensitivity is None:
            return 0.0
        return self.factor(name) * sensitivity * self.errors[name].get(type_, 0.0)

    def factor(self, name: str) -> float:
        """Give what the prediction for a tensor is multiplied by."""
        usual = median(self.factors.values()) if self.factors else 1.0
        return self.factors.get(kind_of(name), usual)

    def predicted(self, types: Types) -> float:
        """Predict the KLD of a file."""
        return sum(self.cost(name, type_) for name, type_ in types.items())

    def by_kind(self, types: Types) -> dict[str, float]:
        """Predict the KLD that each kind of tensor causes."""
        predicted: dict[str, float] = {}
        for name, type_ in types.items():
            predicted[kind_of(name)] = predicted.get(kind_of(name), 0.0) + self.cost(name, type_)
        return predicted

    def solve(self, wanted: int) -> Solution:
        """Find the types of the least predicted KLD whose file has at most `wanted` bytes.

        Raises ConfigError: the least file is larger.
        """
        files, tensors = self.files, self.files.tensors
        items = [
            Item(
                np.array([files.data_bytes(tensor, type_) for type_ in self.options[tensor.name]], np.int64),
                np.array([self.cost(tensor.name, type_) for type_ in self.options[tensor.name]]),
            )
            for tensor in tensors
        ]
        smallest = {name: types[0] for name, types in self.options.items()}
        other = files.other_bytes(smallest, self.base)
        while True:
            found = allocate(items, wanted - other)
            if found is None:
                least = other + sum(int(item.n_bytes.min()) for item in items)
                raise refuse_size(files, wanted, least, smallest)
            types = {
                tensor.name: self.options[tensor.name][chosen]
                for tensor, chosen in zip(tensors, found.chosen)
            }
            needed = files.other_bytes(types, self.base)
            if needed <= other:
                break
            other = needed  # metadata name what is not rounded by GPTQ: they depend on the types
        best = min([types, *(mixture.types for mixture in self.stock)], key=self.predicted)
        above = 0.0 if found.exact else self.predicted(best) / max(found.bound, sys.float_info.min) - 1
        predicted = self.predicted(best)
        left = cost_with_any_bits(items, wanted - other) / predicted if predicted > 0 else 1.0
        return Solution(best, max(above, 0.0), min(left, 1.0))
