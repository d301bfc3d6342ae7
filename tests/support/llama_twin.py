"""The llama architecture of tests/support/models.py in numpy: what enters each of its matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.support.models import Model

Array = NDArray[np.float64]


def inputs_of(
    model: Model, tokens: NDArray[np.int32], streams: dict[str, Array] | None = None
) -> dict[str, list[Array]]:
    """Inputs of each matrix, for each expert (n_tokens, n_in), that a sequence of tokens (n,) causes.

    streams: gets, by the first matrix after each norm, (n_tokens, n_in): what the norm was given.
    """
    streams = {} if streams is None else streams
    weights = {name: x.astype(np.float64) for name, x in model.tensors().items()}
    entered: dict[str, list[Array]] = {}

    def apply(name: str, x: Array) -> Array:
        entered[name] = [x]
        return x @ weights[name].T

    hidden = weights["token_embd.weight"][tokens]
    for i in range(model.n_layer):
        block = f"blk.{i}."
        streams[f"{block}attn_q.weight"] = hidden
        x = _norm(hidden, weights[f"{block}attn_norm.weight"])
        q, k, v = (apply(f"{block}attn_{name}.weight", x) for name in "qkv")
        hidden = hidden + apply(f"{block}attn_output.weight", _attention(model, q, k, v))
        streams[f"{block}ffn_gate.weight"] = hidden
        x = _norm(hidden, weights[f"{block}ffn_norm.weight"])
        if model.n_expert:
            _experts(block, apply(f"{block}ffn_gate_inp.weight", x), x, weights, entered)
            return entered  # what comes of it is not followed: one layer only
        gate, up = (apply(f"{block}ffn_{name}.weight", x) for name in ("gate", "up"))
        hidden = hidden + apply(f"{block}ffn_down.weight", _silu(gate) * up)
    streams["output.weight"] = hidden
    entered["output.weight"] = [_norm(hidden, weights["output_norm.weight"])]
    return entered


def _experts(
    block: str, logits: Array, x: Array, weights: dict[str, Array], entered: dict[str, list[Array]]
) -> None:
    n_expert = logits.shape[1]
    chosen = np.argsort(-logits, axis=1)[:, :2]
    came = [x[(chosen == expert).any(axis=1)] for expert in range(n_expert)]
    gate, up = (weights[f"{block}ffn_{name}_exps.weight"] for name in ("gate", "up"))
    entered[f"{block}ffn_gate_exps.weight"] = entered[f"{block}ffn_up_exps.weight"] = came
    entered[f"{block}ffn_down_exps.weight"] = [_silu(y @ g.T) * (y @ u.T) for y, g, u in zip(came, gate, up)]


def _norm(x: Array, weight: Array) -> Array:
    return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5) * weight


def _silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def _attention(model: Model, q: Array, k: Array, v: Array) -> Array:
    head = model.n_embd // model.n_head
    n = len(q)
    q, k, v = (x.reshape(n, -1, head).transpose(1, 0, 2) for x in (q, k, v))  # (heads, tokens, head)
    k, v = (np.repeat(x, model.n_head // model.n_head_kv, axis=0) for x in (k, v))
    scores = _rotated(q) @ _rotated(k).transpose(0, 2, 1) / np.sqrt(head)
    scores[:, ~np.tri(n, dtype=bool)] = -np.inf
    shares = np.exp(scores - scores.max(axis=2, keepdims=True))
    shares /= shares.sum(axis=2, keepdims=True)
    return (shares @ v).transpose(1, 0, 2).reshape(n, -1)


def _rotated(x: Array) -> Array:
    n, head = x.shape[1:]
    angles = np.arange(n)[:, None] * 10000.0 ** (-np.arange(0, head, 2) / head)
    turned = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
    return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)
