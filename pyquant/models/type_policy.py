"""Ask llama.cpp's library which tensor becomes which type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gguf import LlamaFileType

from pyquant import _core
from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import UNQUANTIZED, Tensor
from pyquant.models.tensor_type import TensorType as Type


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
    file_type: LlamaFileType,
    *,
    pure: bool,
    has_importance: bool,
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
    by_pattern
        Regular expressions, and the number of the type that tensors get whose names the expression finds:
        what llama-quantize's --tensor-type says. The first that finds a name counts.

    Returns
    -------
    The number of each tensor's type.

    Raises
    ------
    ModelFileError
        llama.cpp does not know the model's architecture.
    """
    traits = _core.ModelTraits(
        architecture=model.architecture,
        n_embd=model.hyperparameter("embedding_length"),
        n_ff=model.hyperparameter("feed_forward_length"),
        n_layer=model.hyperparameter("block_count"),
        n_head=model.hyperparameter("attention.head_count"),
        n_head_kv=model.hyperparameter(
            "attention.head_count_kv", model.hyperparameter("attention.head_count")
        ),
        n_expert=model.hyperparameter("expert_count"),
    )
    asked = [_core.PolicyTensor(tensor.name, list(tensor.shape), int(tensor.type)) for tensor in tensors]
    try:
        return _core.choose_types(
            traits, asked, int(file_type), pure=pure, has_importance=has_importance,
            by_pattern=list(by_pattern),
        )  # fmt: skip
    except (ValueError, RuntimeError) as error:
        raise ModelFileError(f"{model.path}: llama.cpp cannot plan its quantization: {error}") from None
