"""Models whose matrices GGML must not put in another order: it could not multiply several sequences by them.

Its product of repacked matrices takes no fourth dimension, which sequences side by side are in some graphs
(`GGML_ASSERT(ne13 == 1)`).
"""

from __future__ import annotations

from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import kind_of

BY_HEAD = ("attn_k_b", "attn_v_b")  # of attention in a latent space (MLA): a matrix for each head
BY_SEQUENCE = ("minimax-01",)  # architectures whose linear attention takes each sequence by itself


def must_not_be_repacked(model: ModelFile) -> bool:
    """Say whether a model is one of them.

    GGML repacks matrices of two dimensions, and so those of a latent space with a single head.
    """
    if model.get("general.architecture") in BY_SEQUENCE:
        return True
    return any(kind_of(tensor.name) in BY_HEAD and len(tensor.shape) == 2 for tensor in model.tensors)
