"""Attention in a latent space (MLA), as DeepSeek 2 has it."""

from __future__ import annotations

from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import kind_of

BY_HEAD = ("attn_k_b", "attn_v_b")  # a matrix for each head


def has_latent_attention_of_one_head(model: ModelFile) -> bool:
    """Say whether GGML would repack matrices that it then cannot multiply several sequences by.

    It repacks matrices of two dimensions, and so those of a single head; its product of repacked ones takes
    no fourth dimension, which sequences side by side are (`GGML_ASSERT(ne13 == 1)`).
    """
    return any(kind_of(tensor.name) in BY_HEAD and len(tensor.shape) == 2 for tensor in model.tensors)
