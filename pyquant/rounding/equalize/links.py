"""Find channels of a model that may have another scale while the model computes the same.

What enters a matrix was given by something before it. If that gives a channel 2^-e times as large, and the
matrix has 2^e times as large a column for it, nothing else changes. That holds where nothing but
multiplications is between them:

| channels | given by | enter |
|---|---|---|
| of a norm | the norm's weight and bias | all matrices behind it |
| of values | rows of V: attention adds up values, each channel for itself | attention's output matrix |
| of gated neurons | rows of up: what they give is multiplied by the activation of gate | down |

Channels of neurons without a gate are not among them, as an activation is between them and what follows, nor
are those of embeddings that are the output matrix too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_name import kind_of

# Matrices that a norm's output enters, by the norm, without the layer and the ending. Routers are among them.
BEHIND = {
    "attn_norm": ("attn_q", "attn_k", "attn_v", "attn_qkv", "ssm_in"),
    "ffn_norm": (
        "ffn_gate", "ffn_up", "ffn_gate_exps", "ffn_up_exps", "ffn_gate_up_exps", "ffn_gate_shexp",
        "ffn_up_shexp", "ffn_gate_inp", "ffn_gate_inp_shexp",
    ),
}  # fmt: skip
EXPERTS = ("", "_exps", "_shexp")  # endings of feed-forward matrices: of all tokens, of some, shared


@dataclass(frozen=True)
class Giver:
    """What gives a link's channels."""

    tensor: Tensor  # a norm's weight, a bias, or a matrix whose rows give them
    begin: int = 0  # the entry, or row, of the first channel


@dataclass(frozen=True)
class Link:
    """Channels, what gives them, and the matrices that they enter."""

    givers: tuple[Giver, ...]
    entered: tuple[Tensor, ...]  # matrices that they enter as columns; a vector is a matrix of one row
    n_channels: int  # how many there are, in each expert
    # Heads of keys: each channel enters once for every head of queries that shares its head. 1 where each
    # enters once.
    n_heads: int = 1

    @property
    def kind(self) -> str:
        """What its channels enter, whatever the layer: "attn_output"."""
        return kind_of(self.entered[0].name)

    @property
    def n_experts(self) -> int:
        """Experts that have such channels of their own; 1 where all share them."""
        return self.givers[0].tensor.n_experts

    def to_channels(self, columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up numbers of columns for each channel: (n_experts, n_columns) -> (n_experts, n_channels)."""
        heads = columns.reshape(len(columns), self.n_heads, -1, self.n_channels // self.n_heads)
        return heads.sum(axis=2).reshape(len(columns), -1)

    def to_columns(self, channels: NDArray[np.int8]) -> NDArray[np.int8]:
        """Give each column its channel's number: (n_experts, n_channels) -> (n_experts, n_columns)."""
        n_columns = self.entered[0].n_per_row
        heads = channels.reshape(len(channels), self.n_heads, 1, -1)
        return np.repeat(heads, n_columns // self.n_channels, axis=2).reshape(len(channels), -1)


def links_of(model: ModelFile) -> Iterator[Link]:
    """Find a model's links by the names and shapes of its tensors.

    Whether the model computes what the names say is not known here: `equalize_model` runs it.

    model: the model; only its header is read.
    """
    tensors = {tensor.name: tensor for tensor in model.tensors}
    n_heads = model.hyperparameter("attention.head_count_kv", model.hyperparameter("attention.head_count"))
    for layer in sorted({tensor.layer for tensor in model.tensors} - {-1}):
        prefix = f"blk.{layer}."
        block = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
        yield from _of_norms(block)
        yield from _of_values(block, n_heads)
        for ending in EXPERTS:
            yield from _of_neurons(block, ending)
    if "output.weight" in tensors and "output_norm.weight" in tensors:
        yield _of_norm(tensors, "output_norm", [tensors["output.weight"]])


def _of_norms(block: dict[str, Tensor]) -> Iterator[Link]:
    behind = {norm: [block[f"{name}.weight"] for name in names if f"{name}.weight" in block]
              for norm, names in BEHIND.items()}  # fmt: skip
    if "ffn_norm.weight" not in block:  # both parts of the layer are behind one norm, or this one has none
        parallel = behind.pop("ffn_norm")
        if not any(name.startswith(("post_", "attn_post", "attn_output_norm")) for name in block):
            behind["attn_norm"] += parallel
    for norm, entered in behind.items():
        weight = block.get(f"{norm}.weight")
        # Where some are of another width they are behind another norm (kimi-k3's experts).
        if weight and entered and all(matrix.n_per_row == weight.n_weights for matrix in entered):
            yield _of_norm(block, norm, entered)


def _of_norm(tensors: dict[str, Tensor], norm: str, entered: Sequence[Tensor]) -> Link:
    givers = (Giver(tensors[name]) for name in (f"{norm}.weight", f"{norm}.bias") if name in tensors)
    return Link(tuple(givers), tuple(entered), tensors[f"{norm}.weight"].n_weights)


def _of_values(block: dict[str, Tensor], n_heads: int) -> Iterator[Link]:
    mixes = block.get("attn_output.weight")
    name = "attn_v" if "attn_v.weight" in block else "attn_qkv"
    matrix = block.get(f"{name}.weight")
    if mixes is None or matrix is None:
        return
    n_rows = matrix.shape[1]
    n_channels = n_rows if name == "attn_v" else (n_rows - mixes.n_per_row) // 2  # behind rows of Q and of K
    if n_heads and n_channels > 0 and n_channels % n_heads == 0 and mixes.n_per_row % n_channels == 0:
        givers = _rows(block, name, n_rows - n_channels)
        yield Link(givers, (mixes,), n_channels, n_heads)


def _of_neurons(block: dict[str, Tensor], ending: str) -> Iterator[Link]:
    name = f"ffn_gate_up{ending}" if f"ffn_gate_up{ending}.weight" in block else f"ffn_up{ending}"
    up, down = block.get(f"{name}.weight"), block.get(f"ffn_down{ending}.weight")
    if up is None or down is None or (ending == "_exps" and f"{name}.bias" in block):
        return  # experts with biases (gpt-oss) add to what up gives before it is multiplied
    n_rows, n_channels = up.shape[1], down.n_per_row
    gated = f"ffn_gate{ending}.weight" in block and n_rows == n_channels
    if gated or n_rows == 2 * n_channels:  # gate and up in one matrix, gate first
        yield Link(_rows(block, name, n_rows - n_channels), (down,), n_channels)


def _rows(block: dict[str, Tensor], name: str, begin: int) -> tuple[Giver, ...]:
    names = (f"{name}.weight", f"{name}.bias")
    return tuple(Giver(block[name], begin) for name in names if name in block)
