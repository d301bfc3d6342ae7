"""The graph of llama's architecture, and of Qwen's, in numpy: forwards and backwards over a sequence.

llama.cpp computes no gradients of what its matrices give. Arrays are (n_tokens, width) float32. What a layer
computes inside is computed again when its gradients are wanted, so that only the residual stream is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyquant.calibration.panels import triangle_size
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
BLOCK_BYTES = 1 << 28  # of rows of the vocabulary that are in memory at a time, in float32
# Whether positions turn pairs of neighbors, or of numbers half a head apart.
NEIGHBORS = {"llama": True, "qwen2": False, "qwen3": False}

# Called with a matrix' name and the gradients of what it gives, (n_tokens, n_out).
Take = Callable[[str, Array], None]


def why_unknown(model: ModelFile) -> str | None:
    """Say why a model is not known here: its architecture, or a tensor; None: it is known."""
    tensors = {tensor.name for tensor in model.tensors}
    layers = range(model.hyperparameter("block_count"))
    needed = {f"blk.{i}.{kind}.weight" for i in layers for kind in (*MATRICES, *VECTORS)}
    more = {f"blk.{i}.{kind}.bias" for i in layers for kind in BIASED}
    more |= {f"blk.{i}.{kind}_norm.weight" for i in layers for kind in NORMED}
    others = tensors - needed - more - {EMBEDDINGS, OUTPUT, "output_norm.weight", FACTORS}
    if model.architecture in NEIGHBORS and not others and not needed - tensors:
        return None
    return (
        f"output_side: {model.path}: known for architectures {', '.join(NEIGHBORS)} without experts, "
        f"and this model is {model.architecture}" + (f" with {min(others)}" if others else "")
    )


def narrow_outputs(model: ModelFile, most_bytes: int) -> list[str]:
    """List matrices whose output-side Hessians take at most so many bytes together.

    Kinds are taken or left whole, those with the narrowest outputs first.
    """
    tensors = [tensor for tensor in model.tensors if tensor.layer >= 0 and kind_of(tensor.name) in MATRICES]
    by_kind = [[tensor for tensor in tensors if kind_of(tensor.name) == kind] for kind in MATRICES]
    chosen: list[str] = []
    for kind in sorted(by_kind, key=output_side_bytes):
        most_bytes -= output_side_bytes(kind)
        if most_bytes < 0:
            break
        chosen += [tensor.name for tensor in kind]
    return chosen


def output_side_bytes(matrices: Iterable[Tensor]) -> int:
    """Count the bytes that output-side Hessians of some matrices take in a file."""
    return 4 * sum(triangle_size(tensor.n_rows) for tensor in matrices)


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

    def __init__(self, model: ModelFile) -> None:
        """Read sizes.

        model: the model. Weights are read whenever they are needed.
        Raises ConfigError: see `why_unknown`.
        """
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
        self._embeddings = _Vocabulary(self._tensors[EMBEDDINGS])
        self._output = _Vocabulary(self._tensors.get(OUTPUT, self._tensors[EMBEDDINGS]))
        self._output_norm = self._tensors["output_norm.weight"].weights().ravel()

    @property
    def n_out(self) -> dict[str, int]:
        """Count the numbers that each matrix gives for a token, by its name, where gradients are given."""
        names = (f"blk.{i}.{kind}.weight" for i in range(self.n_layers) for kind in MATRICES)
        return {name: self._tensors[name].shape[1] for name in names}

    def streams(self, tokens: NDArray[np.int32]) -> list[Array]:
        """Give the residual stream before each layer, and behind the last."""
        streams = [self._embeddings.of(tokens)]
        for i in range(self.n_layers):
            its = self._inside(i, streams[-1])
            neurons = its.gate * its.opened * its.up
            streams.append(its.between + neurons @ its.weights["ffn_down"].T)
        return streams

    def logits(self, last: Array) -> Array:
        """Give logits, (n_tokens, n_vocab), of the residual stream behind the last layer."""
        normed = last * self._scale(last) * self._output_norm
        logits = np.empty((len(last), self._output.n_rows), np.float32)
        for rows, weights in self._output.blocks():
            np.matmul(normed, weights.T, out=logits[:, rows])
        return logits

    def backwards(self, streams: list[Array], logits: Array, take: Take) -> None:
        """Follow gradients of logits back through all layers, and hand on those of what each matrix gives."""
        last = streams[-1]
        of_last = np.zeros_like(last)
        for rows, weights in self._output.blocks():
            of_last += logits[:, rows] @ weights
        back = self._norm_back(last, self._output_norm, of_last)
        for i in reversed(range(self.n_layers)):
            back = self._layer_back(i, streams[i], back, take)

    def _weights(self, layer: int) -> dict[str, Array]:
        weights = {kind: self._tensors[f"blk.{layer}.{kind}.weight"].weights() for kind in MATRICES}
        vectors = (*(f"{kind}.weight" for kind in VECTORS), *(f"{kind}_norm.weight" for kind in NORMED))
        for name in (*vectors, *(f"{kind}.bias" for kind in BIASED)):
            if (tensor := self._tensors.get(f"blk.{layer}.{name}")) is not None:
                weights[name.removesuffix(".weight")] = tensor.weights().ravel()
        return weights

    def _inside(self, layer: int, stream: Array) -> _Inside:
        of, n = self._weights(layer), len(stream)
        x = stream * self._scale(stream) * of["attn_norm"]
        of_q, of_k, v = (
            (x @ of[kind].T + of.get(f"{kind}.bias", np.float32(0))).reshape(n, -1, self._width)
            for kind in ("attn_q", "attn_k", "attn_v")
        )
        q, k = (
            self._rotated(x * self._scale(x) * of[f"{kind}_norm"] if f"{kind}_norm" in of else x)
            for kind, x in (("attn_q", of_q), ("attn_k", of_k))
        )
        group = self._n_heads // self._n_kv
        shares = np.empty((self._n_heads, n, n), np.float32)
        mixed = np.empty((n, self._n_heads, self._width), np.float32)
        for head in range(self._n_heads):
            shares[head] = _softmax(q[:, head] @ k[:, head // group].T * self._over_root)
            mixed[:, head] = shares[head] @ v[:, head // group]
        between = stream + mixed.reshape(n, -1) @ of["attn_output"].T
        y = between * self._scale(between) * of["ffn_norm"]
        gate, up = y @ of["ffn_gate"].T, y @ of["ffn_up"].T
        return _Inside(of, of_q, of_k, q, k, v, shares, between, gate, up, opened=1 / (1 + np.exp(-gate)))

    def _layer_back(self, layer: int, stream: Array, back: Array, take: Take) -> Array:
        its, n = self._inside(layer, stream), len(stream)
        of, opened, group = its.weights, its.opened, self._n_heads // self._n_kv

        def give(kind: str, gradients: Array) -> Array:
            take(f"blk.{layer}.{kind}.weight", gradients)
            return gradients @ of[kind]

        neurons = give("ffn_down", back)
        of_gate = give("ffn_gate", neurons * its.up * opened * (1 + its.gate * (1 - opened)))
        of_up = give("ffn_up", neurons * its.gate * opened)
        back = back + self._norm_back(its.between, of["ffn_norm"], of_gate + of_up)
        mixed = give("attn_output", back).reshape(n, -1, self._width)
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
            q = self._norm_back(its.of_q, of["attn_q_norm"], q)
            k = self._norm_back(its.of_k, of["attn_k_norm"], k)
        entered = give("attn_q", q.reshape(n, -1)) + give("attn_k", k.reshape(n, -1))
        entered += give("attn_v", v.reshape(n, -1))
        return back + self._norm_back(stream, of["attn_norm"], entered)

    @property
    def _over_root(self) -> np.float32:
        return np.float32(1 / np.sqrt(self._width))

    def _scale(self, stream: Array) -> Array:
        return 1 / np.sqrt(np.square(stream).mean(axis=-1, keepdims=True) + self._epsilon)

    def _norm_back(self, stream: Array, weights: Array, gradients: Array) -> Array:
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


class _Vocabulary:
    """A matrix with a row for each token, of which a part is decoded at a time."""

    def __init__(self, tensor: Tensor) -> None:
        self._rows, self._decoder, self._n_in = tensor.stored_rows(), tensor.decoder(), tensor.n_per_row
        self.n_rows = tensor.n_rows

    def of(self, tokens: NDArray[np.int32]) -> Array:
        return self._decoder.decode(self._rows[tokens], n_per_row=self._n_in)

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        step = max(1, BLOCK_BYTES // (4 * self._n_in))
        for begin in range(0, self.n_rows, step):
            rows = slice(begin, begin + step)
            yield rows, self._decoder.decode(self._rows[rows], n_per_row=self._n_in)


@dataclass(frozen=True)
class _Inside:
    """What a layer computed: weights by kind, Q, K, attention, the residual stream between, neurons."""

    weights: dict[str, Array]
    of_q: Array
    of_k: Array
    q: Array
    k: Array
    v: Array
    shares: Array
    between: Array
    gate: Array
    up: Array
    opened: Array


def _softmax(scores: Array) -> Array:
    """Give shares of the tokens up to each one."""
    scores[np.triu_indices(len(scores), 1)] = -np.inf
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores
