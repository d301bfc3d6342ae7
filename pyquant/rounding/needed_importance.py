"""Refuse very low bits without an importance matrix, tensor by tensor, as llama-quantize does."""

from __future__ import annotations

from collections.abc import Mapping

from gguf import LlamaFileType

from pyquant import _core
from pyquant.calibration.imatrix import ImportanceMatrix
from pyquant.errors import ConfigError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_type import TensorType as Type
from pyquant.models.type_policy import quantizable
from pyquant.schemes import Mode

# What llama-quantize makes of no tensor without its importance, embeddings and output apart.
NEED_IMPORTANCE = {Type.IQ1_S, Type.IQ1_M, Type.IQ2_XXS, Type.IQ2_XS, Type.IQ2_S, Type.IQ3_XXS}
EMBEDDINGS_AND_OUTPUT = {"token_embd.weight", "per_layer_token_embd.weight", "output.weight"}


def check_importance(
    model: ModelFile, mode: Mode, types: Mapping[str, Type], importance: ImportanceMatrix | None
) -> None:
    """Refuse what comes out as garbage, or what GGML cannot do at all.

    Parameters
    ----------
    types
        What each tensor becomes, by name.
    importance
        The importance matrix; None: none is given.

    Raises
    ------
    ConfigError
        A tensor becomes a type that needs its importance, and the matrix lacks it. The message names it.
    """
    needing = [tensor for tensor in model.tensors if _needs(tensor, types[tensor.name], mode)]
    if not needing or mode.copies:
        return
    again = set[str]()
    if importance is None:  # then llama-quantize asks before it looks whether a tensor has the type already
        again = quantizable(model)
    for tensor in needing:
        type_ = types[tensor.name]
        if type_ == tensor.type and tensor.name not in again:
            continue
        made = f"imatrix: {mode.mode} makes {tensor.name!r} {type_.name}, which needs"
        if importance is None:
            raise ConfigError(f"{made} an importance matrix; give one with --imatrix")
        if importance.of(tensor) is None:
            raise ConfigError(
                f"{made} its importance, and {importance.path} lacks it; make one of a text that reaches "
                f"it, or give the tensor another type"
            )


def _needs(tensor: Tensor, type_: Type, mode: Mode) -> bool:
    if _core.requires_importance(int(type_)):  # GGML's quantizer, of embeddings and output too
        return True
    if tensor.name in EMBEDDINGS_AND_OUTPUT:
        return False
    return type_ in NEED_IMPORTANCE or (type_ is Type.Q2_K and mode.file_type == LlamaFileType.MOSTLY_Q2_K_S)
