"""The model's sizes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """Every row (n_embd, n_ff) is a multiple of 256, the longest block of GGML's types, so that each
    type applies to each matrix without a fallback."""

    n_vocab: int = 4096
    n_embd: int = 256
    n_layer: int = 4
    n_head: int = 4
    n_head_kv: int = 2
    n_ff: int = 768
    n_ctx: int = 512
    rope_base: float = 10000.0
    norm_eps: float = 1e-5

    @property
    def head(self) -> int:
        return self.n_embd // self.n_head
