"""Check a model's numbers before llama.cpp loads it: those that it asserts would end the process."""

from __future__ import annotations

import reprlib

import numpy as np

from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile

MOST_LAYERS, MOST_EXPERTS = 512, 1024  # LLAMA_MAX_LAYERS, LLAMA_MAX_EXPERTS
SCALINGS = ("none", "linear", "yarn", "longrope")
# Files that change a model, by their general.type or architecture.
NO_MODELS = {
    "adapter": "an adapter such as LoRA's: merge it into its base first",
    "controlvector": "a control vector, which llama.cpp adds to a running model",
}


def check_numbers(model: ModelFile) -> None:
    """Refuse what is no model, and numbers of layers, experts and positions that llama.cpp asserts not to be.

    What it asserts is in `llama_model_base::load_hparams`.

    Raises ModelFileError: the message names the key.
    """

    for kind in (model.get("general.type"), model.architecture):
        if isinstance(kind, str) and kind in NO_MODELS:
            raise ModelFileError(f"{model.path}: is no model, but {NO_MODELS[kind]}")

    def number(name: str, default: int = 0) -> int:
        return model.hyperparameter(name, default)

    layers, experts, used = number("block_count", 1), number("expert_count"), number("expert_used_count")
    by_layer = model.get(f"{model.architecture}.expert_used_count")
    if isinstance(by_layer, np.ndarray) and by_layer.size:
        used = int(by_layer.max())
    groups, used_groups = number("expert_group_count"), number("expert_group_used_count")
    scaling = model.get(f"{model.architecture}.rope.scaling.type", SCALINGS[0])
    grouped = groups > 1
    sound = {
        "block_count": 1 <= layers <= MOST_LAYERS,
        "nextn_predict_layers": number("nextn_predict_layers") <= layers,
        "expert_count": experts <= MOST_EXPERTS,
        "expert_used_count": (0 < used <= experts) if experts else used == 0,
        "expert_group_count": groups < max(experts, 1) and not (grouped and experts % groups),
        "expert_group_used_count": not grouped or 0 < used_groups < groups,
        "rope.scaling.type": not isinstance(scaling, str) or scaling in SCALINGS,
    }
    for name, holds in sound.items():
        if not holds:
            key = f"{model.architecture}.{name}"
            raise ModelFileError(
                f"{model.path}: {key} is {reprlib.repr(model.get(key))}, of which llama.cpp can run no model"
            )
