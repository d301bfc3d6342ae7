"""Check that a model predicts each token from those before it: others have no such logits."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile

# Their graphs have no output matrix: llama.cpp returns zeros, and no key or call says so.
WITHOUT_LOGITS = {"llama-embed"}


class NotCausal(ModelFileError):
    """A model that does not predict each token from those before it."""


def check_decoder(llama: ModuleType, model: Any, file: ModelFile) -> None:
    """Refuse diffusion models, those with an encoder or without logits; `model` is llama.cpp's pointer.

    Raises NotCausal: it says what the model is.
    """
    if llama.llama_model_is_diffusion(model):
        raise _refusal(file, "a diffusion model, whose tokens see those behind them")
    if llama.llama_model_has_encoder(model):
        raise _refusal(file, "a model with an encoder, which has to read first")
    if file.architecture in WITHOUT_LOGITS:
        raise _refusal(file, "an encoder or embedding model, without logits")


def check_causal(llama: ModuleType, context: Any, file: ModelFile) -> None:
    """Refuse encoders and embedding models; `context` is llama.cpp's pointer.

    Raises NotCausal: it says what the model is.
    """
    if not llama.llama_get_causal_attn(context) or not llama.llama_get_memory(context):
        raise _refusal(file, "an encoder or embedding model, whose tokens see those behind them")


def _refusal(file: ModelFile, what: str) -> NotCausal:
    return NotCausal(
        f"{file.path}: {file.architecture} is {what}; pyquant quantizes it by rounding to nearest, and runs "
        f"models that predict each token from those before it"
    )
