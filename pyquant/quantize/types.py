"""Which tensor becomes which type: llama.cpp's own decision, asked through its library."""

from __future__ import annotations

import re

from gguf import LlamaFileType

from pyquant.errors import ConfigError, ModelFileError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import UNQUANTIZED, Tensor
from pyquant.models.tensor_type import TensorType as Type
from pyquant.models.type_policy import ask_llama
from pyquant.schemes import Mode

# llama-quantize refuses to make these without an importance matrix, embeddings and output apart.
NEED_IMPORTANCE = {Type.IQ1_S, Type.IQ1_M, Type.IQ2_XXS, Type.IQ2_XS, Type.IQ2_S, Type.IQ3_XXS}
EMBEDDINGS_AND_OUTPUT = {"token_embd.weight", "per_layer_token_embd.weight", "output.weight"}


def choose_types(model: ModelFile, mode: Mode, *, has_importance: bool = False) -> dict[str, Type]:
    """The type of every tensor after quantization, in the model's order.

    Raises ModelFileError if the model's architecture is unknown to llama.cpp or tensors to be
    quantized already are, ConfigError if `mode.tensors` finds none or an importance matrix is
    missing.
    """
    sources = {t.name: t.type for t in model.tensors}
    chosen = ask_llama(model, sources, mode.file_type, pure=mode.pure, has_importance=has_importance)
    wanted = _matcher(mode)
    types = {
        tensor.name: Type(kind) if wanted(tensor) else tensor.type
        for tensor, kind in zip(model.tensors, chosen)
    }
    changed = [tensor for tensor in model.tensors if types[tensor.name] != tensor.type]
    for tensor in changed:
        if tensor.type not in UNQUANTIZED:
            raise ModelFileError(
                f"{model.path}: already quantized: tensor {tensor.name!r} is {tensor.type.name}; "
                f"start from the F32, F16 or BF16 model"
            )
    if mode.tensors and not any(wanted(tensor) for tensor in changed):
        raise ConfigError(f"tensors: {mode.tensors!r} finds no tensor to quantize in {model.path}")
    if not has_importance:
        _refuse_missing_importance(changed, types, mode)
    return types


def _matcher(mode: Mode):
    if mode.tensors is None:
        return lambda tensor: True
    try:
        pattern = re.compile(mode.tensors)
    except re.error as error:
        raise ConfigError(f"tensors: {mode.tensors!r} is not a regular expression: {error}") from None
    return lambda tensor: pattern.search(tensor.name) is not None


def _refuse_missing_importance(changed: list[Tensor], types: dict[str, Type], mode: Mode) -> None:
    for tensor in changed:
        kind = types[tensor.name]
        needs = kind in NEED_IMPORTANCE or (
            kind is Type.Q2_K and mode.file_type is LlamaFileType.MOSTLY_Q2_K_S
        )
        if needs and tensor.name not in EMBEDDINGS_AND_OUTPUT:
            raise ConfigError(
                f"imatrix: {mode.mode} makes {tensor.name!r} {kind.name}, which needs an importance "
                f"matrix; give one with --imatrix"
            )
