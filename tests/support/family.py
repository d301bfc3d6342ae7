"""A family of models as data, and a small model of it with structured random weights.

Which tensors a family has is what gguf says of its architecture; SHAPES says what they look like.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf import (
    MODEL_ARCH,
    MODEL_ARCH_NAMES,
    MODEL_TENSORS,
    TENSOR_NAMES,
    GGMLQuantizationType,
    GGUFWriter,
)
from gguf.quants import quantize
from numpy.typing import NDArray

from pyquant.data.generated import FILE_TYPES, GeneratedModel
from tests.support.byte_pairs import add_byte_pairs
from tests.support.gguf_file import finish
from tests.support.structured_weights import structured_weights

# Sizes by the names that llama.cpp's metadata have for them; those of a family replace some of them.
SIZES = {
    "context_length": 256, "embedding_length": 96, "feed_forward_length": 160, "block_count": 2,
    "attention.head_count": 4, "attention.head_count_kv": 2, "attention.key_length": 24,
}  # fmt: skip
EXPERTS = {"expert_count": 4, "expert_used_count": 2}

# Lengths of tensors in numpy's order, the length of a row last: names of `Family.lengths`.
SHAPES = {
    "token_embd": ("vocabulary", "width"), "position_embd": ("context", "width"),
    "output_norm": ("width",), "output": ("vocabulary", "width"),
    "attn_norm": ("width",), "ffn_norm": ("width",),
    "post_attention_norm": ("width",), "post_ffw_norm": ("width",),
    "attn_q": ("q", "width"), "attn_k": ("kv", "width"), "attn_v": ("kv", "width"),
    "attn_qkv": ("qkv", "width"),
    "attn_q_norm": ("head",), "attn_k_norm": ("head",), "attn_output": ("width", "q"),
    "ffn_gate": ("ff", "width"), "ffn_up": ("ff", "width"), "ffn_down": ("width", "ff"),
    "ffn_gate_inp": ("experts", "width"),
    "ffn_gate_exps": ("experts", "ff", "width"), "ffn_up_exps": ("experts", "ff", "width"),
    "ffn_down_exps": ("experts", "width", "ff"),
    "ssm_in": ("inner twice", "width"), "ssm_out": ("width", "inner"),
    "ssm_conv1d": ("inner", "convolved"), "ssm_x": ("time and states", "inner"),
    "ssm_dt": ("inner", "time"), "ssm_a": ("inner", "state"), "ssm_d": ("inner",),
}  # fmt: skip
NO_SUFFIX = {"ssm_a", "ssm_d"}  # their names have no ".weight"

# Tensors that converted files keep in F32, beside tensors of one dimension.
KEPT = {"ffn_gate_inp", "position_embd", "ssm_conv1d", "ssm_a"}

OPTIONAL = {"rope_freqs", "rope_factors_long", "rope_factors_short", "attn_rot_embd"}


@dataclass(frozen=True)
class Family:
    """A family of models.

    Attributes
    ----------
    architecture
        As llama.cpp knows it.
    sizes
        Metadata in which it differs from SIZES, and those that only it has; without the architecture's name.
    biases
        Tensors that have a bias beside them.
    shapes
        Tensors that look otherwise than SHAPES says.
    tied
        Whether the output matrix is the embeddings'.
    layer_norm
        Whether norms subtract the mean, and have biases.
    pairs
        Whether its tokenizer merges pairs of bytes, and texts begin without BOS.
    type
        Of its matrices.
    n_vocab
        Tokens of its vocabulary, those that are not in use included.
    """

    architecture: MODEL_ARCH
    sizes: dict[str, Any] = field(default_factory=dict)
    biases: tuple[str, ...] = ()
    shapes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tied: bool = False
    layer_norm: bool = False
    pairs: bool = False
    type: GGMLQuantizationType = GGMLQuantizationType.F16
    n_vocab: int = 320

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata of its file about sizes."""
        sizes = {**SIZES, **self.sizes}
        head = sizes["attention.key_length"]
        epsilon = "attention.layer_norm_epsilon" if self.layer_norm else "attention.layer_norm_rms_epsilon"
        if sizes["attention.head_count"]:
            sizes |= {"attention.value_length": head, "rope.dimension_count": head}
        else:
            del sizes["attention.key_length"]
        return {**sizes, "vocab_size": self.n_vocab, epsilon: 1e-5}

    @property
    def lengths(self) -> dict[str, int]:
        """Lengths that names in SHAPES stand for."""
        sizes = {**SIZES, **self.sizes}
        head, ff = sizes["attention.key_length"], sizes["feed_forward_length"]
        q, kv = head * sizes["attention.head_count"], head * sizes["attention.head_count_kv"]
        inner, state, time = (
            sizes.get(f"ssm.{key}", 0) for key in ("inner_size", "state_size", "time_step_rank")
        )
        return {
            "vocabulary": self.n_vocab, "context": sizes["context_length"],
            "width": sizes["embedding_length"],
            "head": head, "q": q, "kv": kv, "qkv": q + 2 * kv,
            "ff": sizes.get("expert_feed_forward_length", ff), "ff twice": 2 * ff,
            "experts": sizes.get("expert_count", 0),
            "inner": inner, "inner twice": 2 * inner, "state": state, "time": time,
            "time and states": time + 2 * state, "convolved": sizes.get("ssm.conv_kernel", 0),
        }  # fmt: skip

    def kinds(self) -> Iterator[str]:
        """Give gguf's names of its tensors, "blk.{bid}.attn_q", without endings."""
        names = [TENSOR_NAMES[tensor] for tensor in MODEL_TENSORS[self.architecture]]
        without = {*OPTIONAL, *(["output"] if self.tied else [])}
        if "blk.{bid}.attn_qkv" in names:
            without |= {"attn_q", "attn_k", "attn_v"}
        experts = {name for name in SHAPES if "_exps" in name or name == "ffn_gate_inp"}
        without |= {"ffn_gate", "ffn_up", "ffn_down"} if self.lengths["experts"] else experts
        return (name for name in names if name.rpartition(".")[2] not in without)

    def shapes_by_name(self) -> dict[str, tuple[int, ...]]:
        """Give the shape of each tensor by its name."""
        shapes, lengths = {**SHAPES, **self.shapes}, self.lengths
        found = {}
        for kind in self.kinds():
            stem = kind.rpartition(".")[2]
            shape = tuple(lengths[length] for length in shapes[stem])
            biased = stem in self.biases or (self.layer_norm and stem.endswith("norm"))
            for layer in range({**SIZES, **self.sizes}["block_count"] if "{bid}" in kind else 1):
                name = kind.format(bid=layer)
                found[name if stem in NO_SUFFIX else f"{name}.weight"] = shape
                if biased:
                    found[f"{name}.bias"] = shape[:1]
        return found

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """Give all weights by name. The same family has the same weights."""
        rng = np.random.default_rng(16)
        return {name: structured_weights(name, shape, rng) for name, shape in self.shapes_by_name().items()}

    def write(self, path: Path) -> Path:
        """Write the model to a GGUF file, and give its path."""
        architecture = MODEL_ARCH_NAMES[self.architecture]
        writer = GGUFWriter(path, architecture)
        writer.add_file_type(FILE_TYPES[self.type])
        for key, value in self.metadata.items():
            add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
            add(f"{architecture}.{key}", value)
        if self.pairs:
            add_byte_pairs(writer, self.n_vocab)
        else:
            GeneratedModel(n_vocab=self.n_vocab).add_tokenizer(writer)
        for name, x in self.tensors().items():
            if x.ndim == 1 or name.removesuffix(".weight").rpartition(".")[2] in KEPT:
                writer.add_tensor(name, x)
            else:
                writer.add_tensor(name, quantize(x, self.type), raw_dtype=self.type)
        finish(writer)
        return path
