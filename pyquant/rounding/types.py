"""Decide which tensor becomes which type: llama.cpp's own decision, asked through its library."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from pyquant.errors import ConfigError, ModelFileError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import UNQUANTIZED, Tensor
from pyquant.models.tensor_type import TensorType as Type
from pyquant.models.type_policy import ask_llama
from pyquant.schemes import Mode

LONGEST_BLOCK = 256  # weights, of all types


class Types(NamedTuple):
    """Types of all tensors after quantization, by name in the model's order.

    chosen: what each becomes. wanted: what it would become if blocks of every type divided its rows.
    """

    chosen: dict[str, Type]
    wanted: dict[str, Type]


def choose_types(model: ModelFile, mode: Mode, *, has_importance: bool = False) -> Types:
    """Choose the type of every tensor as llama-quantize does, where the mode does not say it.

    has_importance: whether an importance matrix is given: mixtures depend on it.
    Raises ModelFileError: llama.cpp does not know the architecture, or tensors to be quantized already are
    and the mode does not say `requantize`. ConfigError: `mode.tensors` finds no tensor.
    """
    matches, its_own = _matcher(mode), mode.types(model)

    def ask(tensors: list[Tensor]) -> dict[str, Type]:
        asked = ask_llama(
            model, tensors, mode.file_type, pure=mode.pure, copy=mode.copies, has_importance=has_importance
        )
        chosen = {tensor.name: Type(type_) for tensor, type_ in zip(tensors, asked)} | its_own
        return {t.name: chosen[t.name] if matches(t) else t.type for t in tensors}

    types = Types(ask(model.tensors), ask([whole_blocks(tensor) for tensor in model.tensors]))
    changed = [tensor for tensor in model.tensors if types.chosen[tensor.name] != tensor.type]
    for tensor in changed:
        if not tensor.has_weights:
            raise ModelFileError(
                f"{model.path}: tensor {tensor.name!r} is {tensor.type.name}, of which GGML makes no "
                f"other type"
            )
        if tensor.type not in UNQUANTIZED and not mode.requantize:
            raise ModelFileError(
                f"{model.path}: already quantized: tensor {tensor.name!r} is {tensor.type.name}; "
                f"start from the F32, F16 or BF16 model. Where there is none, --requantize rounds again, and "
                f"`pyquant dequantize` makes an F16 file of it"
            )
    if not its_own:  # a recipe may leave matrices as floats
        _refuse_rows(model, types, mode)
    if mode.tensors and not any(matches(tensor) for tensor in changed):
        raise ConfigError(f"tensors: {mode.tensors!r} finds no tensor to quantize in {model.path}")
    return types


def whole_blocks(tensor: Tensor) -> Tensor:
    """Make the tensor as it would be if blocks of every type divided its rows."""
    n_per_row = -(-tensor.n_per_row // LONGEST_BLOCK) * LONGEST_BLOCK
    return replace(tensor, shape=(n_per_row, *tensor.shape[1:]))


def _matcher(mode: Mode) -> Callable[[Tensor], bool]:
    if mode.tensors is None:
        return lambda tensor: True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of what a later Python may read otherwise
            pattern = re.compile(mode.tensors)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"tensors: {mode.tensors!r} is not a regular expression: {error}") from None
    return lambda tensor: pattern.search(tensor.name) is not None


def _refuse_rows(model: ModelFile, types: Types, mode: Mode) -> None:
    """Refuse a model of which nothing can be quantized; llama-quantize writes one of floats then."""
    wanted = [t for t in model.tensors if types.wanted[t.name] not in (*UNQUANTIZED, t.type)]
    if wanted and all(types.chosen[tensor.name] in UNQUANTIZED for tensor in wanted):
        rows = ", ".join(f"{n:,}" for n in sorted({tensor.n_per_row for tensor in wanted}))
        raise ConfigError(
            f"{mode.mode}: none of the matrices of {model.path} can be quantized: their rows of {rows} "
            f"weights are no multiples of any block's length"
        )
