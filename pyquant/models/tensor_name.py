"""What a tensor's name says of its role in the model."""

from __future__ import annotations


def kind_of(tensor: str) -> str:
    """'blk.3.attn_q.weight' -> 'attn_q'."""
    return tensor.removesuffix(".weight").rpartition(".")[2]
