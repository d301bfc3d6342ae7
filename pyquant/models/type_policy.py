"""Ask llama.cpp's library which tensor becomes which type."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from gguf import LlamaFileType

from pyquant import _core
from pyquant.errors import ModelFileError
from pyquant.models.check_numbers import check_numbers
from pyquant.models.header import LAYOUT_KEYS
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.pqz_file import path_of, scratch_errors, scratch_file
from pyquant.models.tensor import UNQUANTIZED, Tensor, file_bytes
from pyquant.models.tensor_type import TensorType as Type

_policies: WeakKeyDictionary[ModelFile, _core.TypePolicy] = WeakKeyDictionary()


def quantizable(model: ModelFile, tensors: Sequence[Tensor] | None = None) -> set[str]:
    """Name the tensors that llama-quantize would quantize, were they not quantized yet.

    model: the model, whose hyperparameters decide too.
    tensors: its tensors, if their shapes are to be others than in the file.
    Raises ModelFileError: llama.cpp does not know the model's architecture.
    """
    tensors = model.tensors if tensors is None else tensors
    sources = [t if t.type in UNQUANTIZED else replace(t, type=Type.F16) for t in tensors]
    chosen = ask_llama(model, sources, LlamaFileType.MOSTLY_Q8_0, pure=True, has_importance=True)
    return {tensor.name for tensor, type_ in zip(sources, chosen) if type_ not in UNQUANTIZED}


def ask_llama(
    model: ModelFile,
    tensors: Sequence[Tensor],
    file_type: int,
    *,
    pure: bool,
    has_importance: bool,
    copy: bool = False,
    by_pattern: Sequence[tuple[str, int]] = (),
) -> list[int]:
    """Ask for the types that llama-quantize chooses.

    Parameters
    ----------
    model
        The model, whose hyperparameters decide too.
    tensors
        All of its tensors; their types and shapes may be others than in the file.
    file_type
        What llama-quantize would be asked for.
    pure
        Whether all tensors get the same type.
    has_importance
        Whether llama-quantize would be given an importance matrix.
    copy
        Whether it would be asked for COPY.
    by_pattern
        Regular expressions of C++, and the number of the type that tensors get whose names the expression
        finds: what llama-quantize's --tensor-type says. The first that finds a name counts.

    Returns
    -------
    The number of each tensor's type.

    Raises
    ------
    ModelFileError
        llama-quantize refuses the model, such as one of an unknown architecture.
    """
    asked = [_core.PolicyTensor(tensor.name, list(tensor.shape), int(tensor.type)) for tensor in tensors]
    try:
        return _policy(model).choose(
            asked, int(file_type), pure=pure, copy=copy, has_importance=has_importance,
            by_pattern=list(by_pattern),
        )  # fmt: skip
    except (ValueError, RuntimeError) as error:
        check_numbers(model)
        raise ModelFileError(f"{model.path}: llama.cpp cannot plan its quantization: {error}") from None


def copied_file_type(model: ModelFile) -> int:
    """Give the file type that llama-quantize writes where it copies: the file's, or one by its tensors.

    Raises ModelFileError: llama-quantize refuses the model.
    """
    try:
        return _policy(model).file_type
    except (ValueError, RuntimeError) as error:
        check_numbers(model)
        raise ModelFileError(f"{model.path}: llama.cpp cannot copy it: {error}") from None


def _policy(model: ModelFile) -> _core.TypePolicy:
    """Let llama.cpp read the model's hyperparameters, once: from one file that has all shards' headers.

    Raises RuntimeError: it refuses them.
    """
    _ = model.architecture  # refuses a file that is no model
    if model not in _policies:
        header = _core.Gguf()
        header.copy_keys(model.header)
        for key in LAYOUT_KEYS:
            header.remove(key)
        for tensor in model.tensors:
            header.add_tensor(tensor.name, int(tensor.type), tensor.shape)
        with scratch_file() as file:
            with scratch_errors("the metadata"):
                file.write(header.header())
                file.truncate(file_bytes(header))
            _policies[model] = _core.TypePolicy(os.fsencode(path_of(file)))
    return _policies[model]
