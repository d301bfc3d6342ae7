"""Llama models of any size with random weights: to measure speed and memory on, and to try things with."""

from __future__ import annotations

import os
import string
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType
from gguf.quants import quant_shape_to_byte_shape, quantize
from numpy.typing import NDArray

FILE_TYPES = {
    GGMLQuantizationType.F32: LlamaFileType.ALL_F32,
    GGMLQuantizationType.F16: LlamaFileType.MOSTLY_F16,
    GGMLQuantizationType.BF16: LlamaFileType.MOSTLY_BF16,
}
PIECES = ("\u2581", *string.ascii_lowercase, "th", "he", "in", "er", "an", "\u2581t", "\u2581a")
LEAST_VOCABULARY = 3 + 256 + len(PIECES)  # control tokens, bytes, pieces


@dataclass(frozen=True)
class GeneratedModel:
    """A model of the llama architecture with random weights and a small tokenizer.

    Weights have heavy tails, as trained ones have. The model predicts nothing: it serves where shapes and
    types matter, and not what a model has learned. The same parameters give the same weights.

    Parameters
    ----------
    n_embd, n_ff, n_layer, n_head, n_head_kv, n_vocab : int
        Sizes, by llama.cpp's names.
    n_expert : int
        Experts of each layer; 0 for a dense model.
    n_used : int
        Experts that a token is sent to.
    n_ctx : int
        Tokens of context that it says it was trained with.
    tied : bool
        Whether the output matrix is the embeddings'.
    type : gguf.GGMLQuantizationType
        Type of the matrices: F32, F16 or BF16. Norms and routers are F32.
    seed : int
        Seed of the random weights.
    """

    n_embd: int = 64
    n_ff: int = 96
    n_layer: int = 2
    n_head: int = 4
    n_head_kv: int = 4
    n_vocab: int = 320
    n_expert: int = 0
    n_used: int = 2
    n_ctx: int = 256
    tied: bool = False
    type: GGMLQuantizationType = GGMLQuantizationType.F32
    seed: int = 0

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return each tensor's shape by its name, in numpy's order: the length of a row last."""
        experts, suffix = ((self.n_expert,), "_exps") if self.n_expert else ((), "")
        n_kv = self.n_embd // self.n_head * self.n_head_kv
        shapes = {"token_embd": (self.n_vocab, self.n_embd), "output_norm": (self.n_embd,)}
        if not self.tied:
            shapes["output"] = (self.n_vocab, self.n_embd)
        for i in range(self.n_layer):
            layer = {
                "attn_norm": (self.n_embd,),
                "attn_q": (self.n_embd, self.n_embd),
                "attn_k": (n_kv, self.n_embd),
                "attn_v": (n_kv, self.n_embd),
                "attn_output": (self.n_embd, self.n_embd),
                "ffn_norm": (self.n_embd,),
                f"ffn_gate{suffix}": (*experts, self.n_ff, self.n_embd),
                f"ffn_up{suffix}": (*experts, self.n_ff, self.n_embd),
                f"ffn_down{suffix}": (*experts, self.n_embd, self.n_ff),
            }
            if self.n_expert:
                layer["ffn_gate_inp"] = (self.n_expert, self.n_embd)
            shapes |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
        return {f"{name}.weight": shape for name, shape in shapes.items()}

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """Return all weights by name, as float32, in the shapes that `shapes` gives."""
        rng = np.random.default_rng(self.seed)
        tensors = {}
        for name, shape in self.shapes().items():
            x = 1 + rng.normal(size=shape) / 8 if len(shape) == 1 else rng.laplace(size=shape) / 16
            tensors[name] = x.astype(np.float32)
        return tensors

    def write(self, path: Path) -> Path:
        """Write the model to a GGUF file, and return its path. Weights are held in memory until then."""
        writer = GGUFWriter(path, "llama")
        self.add_to(writer)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def write_hollow(self, path: Path) -> Path:
        """Write the model with zeros for weights, as a hole that takes no disk, and return its path.

        Serves where sizes alone matter, at any number of layers.
        """
        writer = GGUFWriter(path, "llama")
        self.add_metadata(writer)
        n_bytes = 0
        for name, shape in self.shapes().items():
            type = self._type_of(name, shape)
            stored = quant_shape_to_byte_shape(shape, type)
            size = int(np.prod(stored))
            writer.add_tensor_info(name, stored, np.dtype(np.uint8), size, raw_dtype=type)
            n_bytes += GGUFWriter.ggml_pad(size, writer.data_alignment)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        os.truncate(path, GGUFWriter.ggml_pad(path.stat().st_size, writer.data_alignment) + n_bytes)
        return path

    def add_to(self, writer: GGUFWriter) -> None:
        """Add metadata, tokenizer and tensors to a writer."""
        self.add_metadata(writer)
        for name, x in self.tensors().items():
            type = self._type_of(name, x.shape)
            writer.add_tensor(name, quantize(x, type), raw_dtype=type)

    def _type_of(self, name: str, shape: tuple[int, ...]) -> GGMLQuantizationType:
        norm_or_router = len(shape) == 1 or name.endswith("ffn_gate_inp.weight")
        return GGMLQuantizationType.F32 if norm_or_router else self.type

    def add_metadata(self, writer: GGUFWriter) -> None:
        """Add metadata and tokenizer to a writer."""
        writer.add_name("generated")
        writer.add_file_type(FILE_TYPES[self.type])
        writer.add_context_length(self.n_ctx)
        writer.add_embedding_length(self.n_embd)
        writer.add_block_count(self.n_layer)
        writer.add_feed_forward_length(self.n_ff)
        writer.add_head_count(self.n_head)
        writer.add_head_count_kv(self.n_head_kv)
        writer.add_rope_dimension_count(self.n_embd // self.n_head)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_vocab_size(self.n_vocab)
        if self.n_expert:
            writer.add_expert_count(self.n_expert)
            writer.add_expert_used_count(self.n_used)
        self.add_tokenizer(writer)

    def add_tokenizer(self, writer: GGUFWriter) -> None:
        """Add a tokenizer of SentencePiece's sort: bytes, letters, a few pairs; what is left is unused."""
        if self.n_vocab < LEAST_VOCABULARY:
            raise ValueError(f"n_vocab: the tokenizer has {LEAST_VOCABULARY} tokens, got {self.n_vocab}")
        n_unused = self.n_vocab - LEAST_VOCABULARY
        tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]
        types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
        types += [TokenType.BYTE] * 256 + [TokenType.NORMAL] * len(PIECES)
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens + [f"<unused{i}>" for i in range(n_unused)])
        writer.add_token_scores([0.0] * 259 + [-float(i) for i in range(self.n_vocab - 259)])
        writer.add_token_types(types + [TokenType.UNUSED] * n_unused)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        writer.add_add_bos_token(True)
        writer.add_add_eos_token(False)
