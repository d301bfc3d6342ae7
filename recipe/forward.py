"""The model in numpy, read from its GGUF file: the definition that llama.cpp's results are held to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFReader
from numpy.typing import NDArray

Array = NDArray[np.float32]


class Forward:
    """tensors: float32, in numpy's order: (rows, row length)."""

    def __init__(self, path: Path) -> None:
        reader = GGUFReader(path)
        self.tensors = {tensor.name: tensor.data.astype(np.float32) for tensor in reader.tensors}

        def value(key: str) -> float:
            return reader.fields[f"llama.{key}"].contents()

        self.n_layer = value("block_count")
        self.n_head = value("attention.head_count")
        self.n_head_kv = value("attention.head_count_kv")
        self.norm_eps = value("attention.layer_norm_rms_epsilon")
        self.rope_base = value("rope.freq_base")

    def __call__(self, tokens: NDArray[np.integer]) -> Array:
        """(n,) tokens to (n, n_vocab) logits, row i given tokens 0..i."""
        x = self.tensors["token_embd.weight"][tokens]  # (n, n_embd)
        for i in range(self.n_layer):
            x = x + self._attention(f"blk.{i}", x)
            x = x + self._feed_forward(f"blk.{i}", x)
        return self._times("output", self._norm("output_norm", x))

    def _times(self, name: str, x: Array) -> Array:
        return x @ self.tensors[f"{name}.weight"].T

    def _norm(self, name: str, x: Array) -> Array:
        scale = 1 / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(self.norm_eps))
        return x * scale * self.tensors[f"{name}.weight"]

    def _attention(self, layer: str, x: Array) -> Array:
        n, n_embd = x.shape
        head = n_embd // self.n_head
        normed = self._norm(f"{layer}.attn_norm", x)
        q, k, v = (
            self._times(f"{layer}.attn_{which}", normed).reshape(n, -1, head).swapaxes(0, 1)
            for which in "qkv"
        )  # (heads, n, head)
        q, k = self._rotated(q), self._rotated(k)
        k, v = (np.repeat(y, self.n_head // self.n_head_kv, axis=0) for y in (k, v))
        scores = q @ k.swapaxes(1, 2) / np.float32(head**0.5)  # (n_head, n, n)
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return self._times(f"{layer}.attn_output", (weights @ v).swapaxes(0, 1).reshape(n, n_embd))

    def _rotated(self, x: Array) -> Array:
        """Neighboring pairs, turned by their position: (heads, n, head)."""
        _, n, head = x.shape
        angle = np.outer(np.arange(n), self.rope_base ** -(np.arange(0, head, 2) / head))
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)
        return np.stack([turned.real, turned.imag], -1).reshape(x.shape).astype(np.float32)

    def _feed_forward(self, layer: str, x: Array) -> Array:
        normed = self._norm(f"{layer}.ffn_norm", x)
        gate = self._times(f"{layer}.ffn_gate", normed)
        silu = gate / (1 + np.exp(-gate))
        return self._times(f"{layer}.ffn_down", silu * self._times(f"{layer}.ffn_up", normed))
