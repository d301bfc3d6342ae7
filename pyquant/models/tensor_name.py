"""Read from a tensor's name its kind: its role in the model."""

from __future__ import annotations

EMBEDDINGS, OUTPUT = "token_embd.weight", "output.weight"
MADE_BY_EXPERTS = "ffn_down"  # kinds that begin so get what each expert makes of a token, others the token


def kind_of(tensor: str) -> str:
    """Give the kind of a tensor, by its name: 'attn_q' for 'blk.3.attn_q.weight'."""
    return tensor.removesuffix(".weight").rpartition(".")[2]
