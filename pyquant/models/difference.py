"""Find what tells two model files apart besides the values of their weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pyquant.models.model_file import ModelFile
from pyquant.models.q4_t import is_table_entry
from pyquant.models.tensor import Tensor

LONGEST = 60  # characters of a metadata value that are shown


@dataclass(frozen=True)
class ModelDifference:
    """Tensors and metadata that are not the same in two models.

    Attributes
    ----------
    only_in_base, only_in_model
        Names of tensors.
    not_compared
        Why tensors that are in both cannot be compared, by name.
    metadata
        By key, the value in the base and in the model, shortened to a line; None where there is none.
    """

    only_in_base: list[str]
    only_in_model: list[str]
    not_compared: dict[str, str]
    metadata: dict[str, tuple[str | None, str | None]]

    def __bool__(self) -> bool:
        return bool(self.only_in_base or self.only_in_model or self.not_compared or self.metadata)

    def to_json(self) -> dict[str, Any]:
        """Give the difference as JSON."""
        return {
            "only_in_base": self.only_in_base,
            "only_in_model": self.only_in_model,
            "not_compared": self.not_compared,
            "metadata": {key: {"base": base, "model": model} for key, (base, model) in self.metadata.items()},
        }


def pair_tensors(base: ModelFile, model: ModelFile) -> tuple[list[tuple[Tensor, Tensor]], ModelDifference]:
    """Pair the tensors that can be compared weight by weight, and list all that differs otherwise."""
    theirs = {tensor.name: tensor for tensor in model.tensors}
    ours = {tensor.name for tensor in base.tensors}
    pairs, not_compared = [], {}
    for tensor in base.tensors:
        other = theirs.get(tensor.name)
        if other is None:
            continue
        if other.shape != tensor.shape:
            not_compared[tensor.name] = f"shapes {list(tensor.shape)} and {list(other.shape)}"
        elif without_weights := [either for either in (tensor, other) if not either.has_weights]:
            not_compared[tensor.name] = f"type {without_weights[0].type.name}"
        else:
            pairs.append((tensor, other))
    return pairs, ModelDifference(
        only_in_base=[tensor.name for tensor in base.tensors if tensor.name not in theirs],
        only_in_model=[tensor.name for tensor in model.tensors if tensor.name not in ours],
        not_compared=not_compared,
        metadata=_metadata_difference(base, model),
    )


def _metadata_difference(base: ModelFile, model: ModelFile) -> dict[str, tuple[str | None, str | None]]:
    different = {}
    for key in sorted(filter(lambda key: not is_table_entry(key), base.keys | model.keys)):
        values = base.get(key), model.get(key)
        if not _equal(*values):
            different[key] = _shortened_pair(*values)
    return different


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.array_equal(a, b, equal_nan=a.dtype.kind == b.dtype.kind == "f")
    return type(a) is type(b) and _same(a, b)


def _same(a: Any, b: Any) -> bool:
    """Say whether values are equal, as those are too that both are no number."""
    return a == b or (a != a and b != b)


def _shortened_pair(a: Any, b: Any) -> tuple[str | None, str | None]:
    at = 0
    if _is_array(a) and _is_array(b):  # such as vocabularies: the first place where they part
        at = next((i for i, pair in enumerate(zip(a, b)) if not _same(*pair)), min(len(a), len(b)))
    return _shortened(a, at), _shortened(b, at)


def _shortened(value: Any, at: int) -> str | None:
    if value is None:
        return None
    if _is_array(value):
        element = f", [{at}] = {_shortened(_plain(value[at]), 0)}" if at < len(value) else ""
        return f"{len(value)} values{element}"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _is_array(value: Any) -> bool:
    return isinstance(value, (list, np.ndarray))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
