"""The graph of llama's architecture, and of Qwen's, in numpy: forwards and backwards over a sequence.

llama.cpp computes no gradients of what its matrices give. Arrays are (n_tokens, width) float32. What a layer
computes inside is computed again when its gradients are wanted, so that only the residual stream is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant.calibration.gradients.row_blocks import in_blocks
from pyquant.calibration.panels import triangle_size
from pyquant.calibration.products import Stored, multiply, multiply_back
from pyquant.errors import ConfigError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_name import EMBEDDINGS, OUTPUT, kind_of

Array = NDArray[np.float32]
MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
VECTORS = ("attn_norm", "ffn_norm")
BIASED = ("attn_q", "attn_k", "attn_v")
NORMED = ("attn_q", "attn_k")
FACTORS = "rope_freqs.weight"
OUTPUT_NORM = "output_norm.weight"
TOGETHER = 32  # tokens whose neurons are computed at a time
BLOCK_BYTES = 1 << 28  # of rows of the vocabulary that are in memory at a time, in float32
# Whether positions turn pairs of neighbors, or of numbers half a head apart.
NEIGHBORS = {"llama": True, "qwen2": False, "qwen3": False}

# Called with the name of a matrix or a norm, the gradients of what it gives, (n_tokens, n_out), and what it
# returns that, before a bias is added: None of embeddings and of the output matrix.
Take = Callable[[str, Array, "Callable[[], Array] | None"], None]


def why_unknown(model: ModelFile) -> str | None:
    """Say why a model is not known here: its architecture, or a tensor; None: it is known."""
    tensors = {tensor.name for tensor in model.tensors}
    layers = range(model.hyperparameter("block_count"))
    needed = {f"blk.{i}.{kind}.weight" for i in layers for kind in (*MATRICES, *VECTORS)}
    more = {f"blk.{i}.{kind}.bias" for i in layers for kind in BIASED}
    more |= {f"blk.{i}.{kind}_norm.weight" for i in layers for kind in NORMED}
    others = tensors - needed - more - {EMBEDDINGS, OUTPUT, OUTPUT_NORM, FACTORS}
    if model.architecture in NEIGHBORS and not others and not needed - tensors:
        return None
    return (
        f"gradients: {model.path}: known for architectures {', '.join(NEIGHBORS)} without experts, "
        f"and this model is {model.architecture}" + (f" with {min(others)}" if others else "")
    )


def narrow_outputs(model: ModelFile, most_bytes: int) -> list[str]:
    """List matrices whose output-side Hessians take at most so many bytes together.

    Kinds are taken or left whole, those with the narrowest outputs first.
    """
    tensors = [tensor for tensor in model.tensors if tensor.layer >= 0 and kind_of(tensor.name) in MATRICES]
    by_kind = [[tensor for tensor in tensors if kind_of(tensor.name) == kind] for kind in MATRICES]
    if any(tensor.name == OUTPUT for tensor in model.tensors):
        by_kind.append([tensor for tensor in model.tensors if tensor.name == EMBEDDINGS])
    chosen: list[str] = []
    for kind in sorted(by_kind, key=output_side_bytes):
        most_bytes -= output_side_bytes(kind)
        if most_bytes < 0:
            break
        chosen += [tensor.name for tensor in kind]
    return chosen


def output_side_bytes(matrices: Iterable[Tensor]) -> int:
    """Count the bytes that output-side Hessians of some matrices take in a file."""
    return 4 * sum(triangle_size(n_given(tensor)) for tensor in matrices)


def n_given(tensor: Tensor) -> int:
    """Count the numbers that a matrix gives for a token: of embeddings a row, which is looked up."""
    return tensor.n_per_row if tensor.name == EMBEDDINGS else tensor.n_rows


def gradient_memory(model: ModelFile, n_ctx: int) -> int:
    """Count the bytes that a pass forwards and backwards takes at the most, sums of gradients not counted."""
    sizes = {tensor.name: tensor.n_weights for tensor in model.tensors}
    n_layers, width = model.hyperparameter("block_count"), model.hyperparameter("embedding_length")
    of_layer = sum(sizes[f"blk.0.{kind}.weight"] for kind in MATRICES)
    logits = n_ctx * (sizes[EMBEDDINGS] // width)  # ours, and of the first chunk llama.cpp's
    return 2 * min(BLOCK_BYTES, 4 * sizes[EMBEDDINGS]) + 4 * (
        2 * logits + 2 * of_layer + n_ctx * n_layers * width
    )


class LlamaGraph:
    """A model of architecture llama, qwen2 or qwen3, without experts."""

    def __init__(self, model: ModelFile, *, exact: bool = False, threads: int | None = None) -> None:
        """Read sizes.

        model: the model. Weights are read whenever they are needed.
        exact: whether products forwards are of float32, where the CPU multiplies BF16 too.
        threads: of products with matrices; None: all cores.
        Raises ConfigError: see `why_unknown`.
        """
        self._exact, self._threads = exact, threads
        if why := why_unknown(model):
            raise ConfigError(why)
        self._tensors = {tensor.name: tensor for tensor in model.tensors}
        self._neighbors = NEIGHBORS[model.architecture]
        self.n_layers = model.hyperparameter("block_count")
        self._n_heads = model.hyperparameter("attention.head_count")
        self._n_kv = model.hyperparameter("attention.head_count_kv", self._n_heads)
        self._width = self._tensors["blk.0.attn_q.weight"].shape[1] // self._n_heads
        prefix = model.architecture
        self._epsilon = np.float32(model.get(f"{prefix}.attention.layer_norm_rms_epsilon", 1e-5))
        base = float(model.get(f"{prefix}.rope.freq_base", 10000.0))
        self._frequencies = base ** (-np.arange(0, self._width, 2) / self._width)
        if FACTORS in self._tensors:
            self._frequencies /= self._tensors[FACTORS].weights().ravel()
        self._stored = {name: Stored(self._tensors[name], exact=exact) for name in self.names}
        self._output = self._stored[OUTPUT if OUTPUT in self._tensors else EMBEDDINGS]

    @property
    def n_out(self) -> dict[str, int]:
        """Count the numbers that matrices give for a token, by name: of layers, and of embeddings alone."""
        names = [f"blk.{i}.{kind}.weight" for i in range(self.n_layers) for kind in MATRICES]
        names += [EMBEDDINGS] if OUTPUT in self._tensors else []
        return {name: n_given(self._tensors[name]) for name in names}

    @property
    def names(self) -> list[str]:
        """List the tensors that `backwards` hands on gradients of."""
        return [*self.n_out, OUTPUT if OUTPUT in self._tensors else EMBEDDINGS]

    def streams(self, tokens: NDArray[np.int32]) -> list[Array]:
        """Give the residual stream before each layer, and behind the last."""
        streams = [self._stored[EMBEDDINGS].decoded(tokens)]
        for i in range(self.n_layers):
            its = self._inside(i, streams[-1])
            streams.append(its.between + self._times(its.matrices["ffn_down"], self._neurons(its)))
        return streams

    def logits(self, last: Array) -> Array:
        """Give logits, (n_tokens, n_vocab), of the residual stream behind the last layer."""
        normed = self._normed(last, self._vector(OUTPUT_NORM))
        parts = [self._times(self._output[rows], normed) for rows in self._output.blocks(BLOCK_BYTES)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def backwards(self, streams: list[Array], logits: Array, take: Take) -> None:
        """Follow gradients of logits back, and hand on those of what matrices and norms give.

        Embeddings that are the output matrix too are handed on as that.
        """
        last, has_output = streams[-1], OUTPUT in self._tensors
        take(OUTPUT if has_output else EMBEDDINGS, logits, None)
        of_last = np.zeros_like(last)
        for rows in self._output.blocks(BLOCK_BYTES):
            of_last += self._times_back(self._output[rows], logits[:, rows])
        back = self._norm_back(OUTPUT_NORM, last, self._vector(OUTPUT_NORM), of_last, take)
        for i in reversed(range(self.n_layers)):
            back = self._layer_back(i, streams[i], streams[i + 1], back, take)
        if has_output:
            take(EMBEDDINGS, back, None)

    def _vector(self, name: str) -> Array:
        return self._tensors[name].weights().ravel()

    def _matrices(self, layer: int) -> dict[str, Any]:
        return {kind: self._stored[f"blk.{layer}.{kind}.weight"][:] for kind in MATRICES}

    def _vectors(self, layer: int) -> dict[str, Array]:
        weights = {}
        vectors = (*(f"{kind}.weight" for kind in VECTORS), *(f"{kind}_norm.weight" for kind in NORMED))
        for name in (*vectors, *(f"{kind}.bias" for kind in BIASED)):
            if (whole := f"blk.{layer}.{name}") in self._tensors:
                weights[name.removesuffix(".weight")] = self._vector(whole)
        return weights

    def _inside(self, layer: int, stream: Array) -> _Inside:
        matrices, of, n = self._matrices(layer), self._vectors(layer), len(stream)
        x = self._normed(stream, of["attn_norm"])
        zero = np.float32(0)
        of_q, of_k, v = (
            (self._times(matrices[kind], x) + of.get(f"{kind}.bias", zero)).reshape(n, -1, self._width)
            for kind in ("attn_q", "attn_k", "attn_v")
        )
        q, k = (
            self._rotated(self._normed(x, of[f"{kind}_norm"]) if f"{kind}_norm" in of else x)
            for kind, x in (("attn_q", of_q), ("attn_k", of_k))
        )
        group = self._n_heads // self._n_kv
        shares = np.empty((self._n_heads, n, n), np.float32)
        mixed = np.empty((n, self._n_heads, self._width), np.float32)
        for head in range(self._n_heads):
            scores = q[:, head] @ k[:, head // group].T * self._over_root
            scores += _later(n)
            shares[head] = to_shares(scores)
            mixed[:, head] = shares[head] @ v[:, head // group]
        between = stream + self._times(matrices["attn_output"], mixed.reshape(n, -1))
        y = self._normed(between, of["ffn_norm"])
        gate, up = self._times(matrices["ffn_gate"], y), self._times(matrices["ffn_up"], y)
        return _Inside(matrices, of, of_q, of_k, q, k, v, shares, between, gate, up)

    def _neurons(self, its: _Inside) -> Array:
        """Give what neurons give, in the place of the gate."""
        neurons = its.gate

        def multiply(rows: slice) -> None:
            neurons[rows] *= _sigmoid(neurons[rows])
            neurons[rows] *= its.up[rows]

        in_blocks(len(neurons), TOGETHER, multiply, threads=self._threads)
        return neurons

    def _layer_back(self, layer: int, stream: Array, behind: Array, back: Array, take: Take) -> Array:
        its, n = self._inside(layer, stream), len(stream)
        of, group = its.vectors, self._n_heads // self._n_kv

        def give(kind: str, gradients: Array, given: Callable[[], Array]) -> Array:
            take(f"blk.{layer}.{kind}.weight", gradients, given)
            return self._times_back(its.matrices[kind], gradients)

        def before(kind: str, stream: Array, gradients: Array) -> Array:
            return self._norm_back(f"blk.{layer}.{kind}.weight", stream, of[kind], gradients, take)

        of_up = give("ffn_down", back, partial(np.subtract, behind, its.between))
        of_gate = np.empty_like(of_up)

        def through_neurons(rows: slice) -> None:
            gate, neurons, slope = its.gate[rows], of_up[rows], of_gate[rows]
            opened = _sigmoid(gate)
            np.subtract(1, opened, out=slope)  # opened * (1 + gate * (1 - opened))
            slope *= gate
            slope += 1
            for factor in (opened, its.up[rows], neurons):
                slope *= factor
            neurons *= gate
            neurons *= opened

        in_blocks(n, TOGETHER, through_neurons, threads=self._threads)
        of_both = give("ffn_gate", of_gate, lambda: its.gate) + give("ffn_up", of_up, lambda: its.up)
        back = back + before("ffn_norm", its.between, of_both)
        written = partial(np.subtract, its.between, stream)
        mixed = give("attn_output", back, written).reshape(n, -1, self._width)
        q, k, v = np.empty_like(its.q), np.zeros_like(its.k), np.zeros_like(its.v)
        for head in range(self._n_heads):
            shares, at = its.shares[head], head // group
            v[:, at] += shares.T @ mixed[:, head]
            of_shares = mixed[:, head] @ its.v[:, at].T
            scores = shares * (of_shares - (of_shares * shares).sum(axis=1, keepdims=True))
            scores *= self._over_root
            q[:, head] = scores @ its.k[:, at]
            k[:, at] += scores.T @ its.q[:, head]
        q, k = self._rotated(q, back=True), self._rotated(k, back=True)
        if "attn_q_norm" in of:
            q, k = before("attn_q_norm", its.of_q, q), before("attn_k_norm", its.of_k, k)
        entered = np.zeros_like(stream)
        for kind, its_own, given in (("attn_q", q, its.of_q), ("attn_k", k, its.of_k), ("attn_v", v, its.v)):
            bias = of.get(f"{kind}.bias", np.float32(0))
            entered += give(kind, its_own.reshape(n, -1), partial(np.subtract, given.reshape(n, -1), bias))
        return back + before("attn_norm", stream, entered)

    def _times(self, matrix: Any, x: Array) -> Array:
        return multiply(matrix, x, exact=self._exact, threads=self._threads)

    def _times_back(self, matrix: Any, gradients: Array) -> Array:
        return multiply_back(matrix, gradients, threads=self._threads)

    @property
    def _over_root(self) -> np.float32:
        return np.float32(1 / np.sqrt(self._width))

    def _scale(self, stream: Array) -> Array:
        return 1 / np.sqrt(np.square(stream).mean(axis=-1, keepdims=True) + self._epsilon)

    def _normed(self, stream: Array, weights: Array) -> Array:
        return stream * self._scale(stream) * weights

    def _norm_back(self, name: str, stream: Array, weights: Array, gradients: Array, take: Take) -> Array:
        take(name, gradients, partial(self._normed, stream, weights))
        scale, gradients = self._scale(stream), gradients * weights
        return scale * gradients - stream * scale**3 * (stream * gradients).mean(axis=-1, keepdims=True)

    def _rotated(self, x: Array, *, back: bool = False) -> Array:
        """Turn pairs of numbers by their position; back: the other way round."""
        angles = np.outer(np.arange(len(x)), self._frequencies)[:, None, :]
        cos, sin = np.cos(angles).astype(np.float32), np.sin(-angles if back else angles).astype(np.float32)
        half = self._width // 2
        apart = slice(half), slice(half, None)
        parts = (slice(0, None, 2), slice(1, None, 2)) if self._neighbors else apart
        first, second = (x[..., part] for part in parts)
        turned = np.empty_like(x)
        turned[..., parts[0]] = first * cos - second * sin
        turned[..., parts[1]] = first * sin + second * cos
        return turned


@dataclass(frozen=True)
class _Inside:
    """What a layer computed: its weights by kind, Q, K, attention, the residual stream between, neurons."""

    matrices: dict[str, Any]  # as `_times` takes them
    vectors: dict[str, Array]
    of_q: Array
    of_k: Array
    q: Array
    k: Array
    v: Array
    shares: Array
    between: Array
    gate: Array
    up: Array


def _sigmoid(x: Array) -> Array:
    y = -x
    np.exp(y, out=y)
    y += 1
    return np.reciprocal(y, out=y)


@lru_cache(maxsize=1)
def _later(n: int) -> Array:
    """(n, n): minus infinity for tokens behind each one, else 0."""
    return np.triu(np.full((n, n), -np.inf, np.float32), 1)


def to_shares(scores: Array) -> Array:
    """Put the softmax of each row in its place."""
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores
