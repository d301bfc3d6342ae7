"""Which tensor becomes which type: llama.cpp's own decision, asked through its library."""

from __future__ import annotations

from gguf import LlamaFileType

from pyquant import _core
from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import UNQUANTIZED
from pyquant.models.tensor_type import TensorType as Type


def quantizable(model: ModelFile) -> set[str]:
    """The tensors that llama-quantize would quantize, were they not quantized yet.

    Raises ModelFileError if the model's architecture is unknown to llama.cpp.
    """
    sources = {t.name: t.type if t.type in UNQUANTIZED else Type.F16 for t in model.tensors}
    chosen = ask_llama(model, sources, LlamaFileType.MOSTLY_Q8_0, pure=True, has_importance=True)
    return {t.name for t, kind in zip(model.tensors, chosen) if kind not in UNQUANTIZED}


def ask_llama(
    model: ModelFile, sources: dict[str, Type], file_type: LlamaFileType, *, pure: bool, has_importance: bool
) -> list[int]:
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
    asked = [_core.PolicyTensor(t.name, t.shape, int(sources[t.name])) for t in model.tensors]
    try:
        return _core.choose_types(traits, asked, int(file_type), pure=pure, has_importance=has_importance)
    except (ValueError, RuntimeError) as error:
        raise ModelFileError(f"{model.path}: llama.cpp cannot plan its quantization: {error}") from None
