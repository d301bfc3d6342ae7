"""Check that a model predicts each token from those before it: others have no such logits."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile


def check_causal(llama: ModuleType, model: Any, context: Any, file: ModelFile) -> None:
    """Refuse encoders, embedding models and diffusion models.

    Parameters
    ----------
    llama
        llama_cpp's functions.
    model, context
        llama.cpp's pointers.
    file
        The model's headers.

    Raises
    ------
    ModelFileError
        It says what the model is.
    """
    if llama.llama_model_is_diffusion(model):
        what = "a diffusion model, whose tokens see those behind them"
    elif llama.llama_model_has_encoder(model):
        what = "a model with an encoder, which has to read first"
    elif not llama.llama_get_causal_attn(context) or not llama.llama_get_memory(context):
        what = "an encoder or embedding model, whose tokens see those behind them"
    else:
        return
    raise ModelFileError(
        f"{file.path}: {file.architecture} is {what}; pyquant quantizes it by rounding to nearest, and runs "
        f"models that predict each token from those before it"
    )
