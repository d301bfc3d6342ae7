"""Name the matrices of a model that are left as they are, or not rounded by GPTQ, and say why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_name import EMBEDDINGS, OUTPUT, kind_of
from pyquant.models.type_policy import quantizable

BLOCK = 32  # weights in the shortest block of all types


@dataclass(frozen=True)
class Untreated:
    """Matrices of one kind that something is not done to.

    Attributes
    ----------
    kind
        Their name without the layer: "ssm_conv1d".
    n_tensors, n_weights
        How many there are.
    what
        What is not done: "quantized", or "gptq".
    why
        The reason.
    """

    kind: str
    n_tensors: int
    n_weights: int
    what: str
    why: str


def untreated(model: ModelFile) -> list[Untreated]:
    """List what cannot be quantized, and what is quantized without GPTQ, from the headers alone.

    Tensors of one dimension are left out: norms and biases always stay as they are. So are matrices that
    llama.cpp has no use for: whether anything enters a matrix only a calibration can tell.

    model: quantized or not.
    Returns: in the order of the model's tensors. Empty for a file that is no model.
    """
    if "general.architecture" not in model.keys or not model.tensors:
        return []
    kinds: dict[tuple[str, str, str], list[Tensor]] = {}
    for tensor, what, why in _reasons(model):
        kinds.setdefault((kind_of(tensor.name), what, why), []).append(tensor)
    return [
        Untreated(kind, len(tensors), sum(tensor.n_weights for tensor in tensors), what, why)
        for (kind, what, why), tensors in kinds.items()
    ]


def _reasons(model: ModelFile) -> Iterator[tuple[Tensor, str, str]]:
    tied = not any(tensor.name == OUTPUT for tensor in model.tensors)
    matrices = [tensor for tensor in model.tensors if len(tensor.shape) > 1]
    divided = [replace(t, shape=(BLOCK * t.n_per_row, *t.shape[1:])) for t in model.tensors]
    try:
        chosen, of_any_length = quantizable(model), quantizable(model, divided)
    except ModelFileError as error:
        refusal = str(error).removeprefix(f"{model.path}: ")
        yield from ((tensor, "quantized", refusal) for tensor in matrices)
        return
    for tensor in matrices:
        if tensor.name in chosen:
            if why := _why_without_gptq(tensor, tied=tied):
                yield tensor, "gptq", why
        elif tensor.name in of_any_length:
            yield tensor, "quantized", f"blocks of {BLOCK} weights do not divide rows of {tensor.n_per_row:,}"
        else:
            yield tensor, "quantized", "llama.cpp keeps its type"


def _why_without_gptq(tensor: Tensor, *, tied: bool) -> str | None:
    """Say why calibration does not learn what enters a matrix that llama.cpp would quantize."""
    if tensor.layer >= 0:
        return None
    if tensor.name == OUTPUT:
        return "its input is collected with `calibrate --process-output` alone"
    if tensor.name == EMBEDDINGS:
        return why_embeddings_are_not(tied)
    return "inputs of matrices outside of layers are not collected"


def why_embeddings_are_not(tied: bool) -> str:
    """Say why embeddings are not rounded by GPTQ with what a calibration collects by default.

    tied: whether the model has no output matrix of its own.
    """
    if tied:
        return "its rows are looked up; as output matrix it needs `calibrate --process-output`"
    return "its rows are looked up, not multiplied"
