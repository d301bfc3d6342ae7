"""Small models of the llama architecture, complete with a tokenizer, for tests to take apart."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter, LlamaFileType, TokenType
from gguf.quants import quantize
from numpy.typing import NDArray

from pyquant import _core
from pyquant.models.pqz.index import CHECKSUM, FRAME, HEAD, HEAD_BYTES

FILE_TYPES = {
    Type.F32: LlamaFileType.ALL_F32,
    Type.F16: LlamaFileType.MOSTLY_F16,
    Type.BF16: LlamaFileType.MOSTLY_BF16,
}


@dataclass(frozen=True)
class Model:
    """What to make. change: given each tensor's name and float32 weights, in numpy's order."""

    n_embd: int = 64
    n_ff: int = 96
    n_layer: int = 2
    n_head: int = 4
    n_head_kv: int = 4
    n_vocab: int = 320
    n_expert: int = 0
    tied: bool = False
    type: Type = Type.F32
    seed: int = 0
    alignment: int | None = None
    tokenizer: bool = True
    change: Callable[[str, NDArray[np.float32]], NDArray[np.float32]] = lambda name, x: x

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """The weights by name, in numpy's order: rows last. Heavy tails, as trained models have."""
        rng = np.random.default_rng(self.seed)
        head = self.n_embd // self.n_head
        experts, suffix = ((self.n_expert,), "_exps") if self.n_expert else ((), "")
        shapes = {"token_embd": (self.n_vocab, self.n_embd), "output_norm": (self.n_embd,)}
        if not self.tied:
            shapes["output"] = (self.n_vocab, self.n_embd)
        for i in range(self.n_layer):
            layer = {
                "attn_norm": (self.n_embd,),
                "attn_q": (self.n_embd, self.n_embd),
                "attn_k": (head * self.n_head_kv, self.n_embd),
                "attn_v": (head * self.n_head_kv, self.n_embd),
                "attn_output": (self.n_embd, self.n_embd),
                "ffn_norm": (self.n_embd,),
                f"ffn_gate{suffix}": (*experts, self.n_ff, self.n_embd),
                f"ffn_up{suffix}": (*experts, self.n_ff, self.n_embd),
                f"ffn_down{suffix}": (*experts, self.n_embd, self.n_ff),
            }
            if self.n_expert:
                layer["ffn_gate_inp"] = (self.n_expert, self.n_embd)
            shapes |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
        tensors = {}
        for name, shape in shapes.items():
            x = 1 + rng.normal(size=shape) / 8 if len(shape) == 1 else rng.laplace(size=shape) / 16
            tensors[f"{name}.weight"] = self.change(f"{name}.weight", x.astype(np.float32))
        return tensors

    def write(self, path: Path, *, tensors_per_shard: int = 0) -> Path:
        """The model at `path`, or its shards beside; returns the (first) file."""
        writer = GGUFWriter(path, "llama", split_max_tensors=tensors_per_shard)
        writer.add_name("made for tests")
        writer.add_file_type(FILE_TYPES[self.type])
        writer.add_context_length(256)
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
            writer.add_expert_used_count(2)
        if self.tokenizer:
            _add_tokenizer(writer, self.n_vocab)
        if self.alignment:
            writer.add_custom_alignment(self.alignment)
        for name, x in self.tensors().items():
            if x.ndim == 1 or name.endswith("ffn_gate_inp.weight") or self.type is Type.F32:
                writer.add_tensor(name, x)
            elif self.type is Type.F16:
                writer.add_tensor(name, x.astype(np.float16))
            else:
                writer.add_tensor(name, quantize(x, self.type), raw_dtype=self.type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        if not tensors_per_shard:
            return path
        return min(path.parent.glob(f"{path.stem}-00001-of-*.gguf"))


def _add_tokenizer(writer: GGUFWriter, n_vocab: int) -> None:
    # SentencePiece's kind: 256 bytes, letters, a few pairs; what is left is unused.
    pieces = ["\u2581", *string.ascii_lowercase, "th", "he", "in", "er", "an", "\u2581t", "\u2581a"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    tokens += [f"<unused{i}>" for i in range(n_vocab - len(tokens))]
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    types += [TokenType.BYTE] * 256 + [TokenType.NORMAL] * len(pieces)
    types += [TokenType.UNUSED] * (n_vocab - len(types))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 259 + [-float(i) for i in range(n_vocab - 259)])
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)


F32, EXPERTS = "f32, rows of 64 and 96", "f16, experts"
ODD_ROWS = "bf16, tied, rows of 64 and 172"

# Every property that decides about a type or a path through the code, in some model.
MODELS = {
    F32: Model(),
    "f16, rows of 256, grouped queries": Model(n_embd=256, n_ff=512, n_head_kv=2, type=Type.F16, seed=1),
    ODD_ROWS: Model(n_ff=172, n_layer=3, tied=True, type=Type.BF16, seed=2),
    EXPERTS: Model(n_embd=256, n_ff=256, n_layer=1, n_expert=3, type=Type.F16, seed=3),
}


def resealed(data: bytes) -> bytes:
    """A packed model with checksums that fit whatever it is made of now, as far as it can be read."""
    data = bytearray(data)
    _, _, n_frames, coded, _, _, _, _ = HEAD.unpack_from(data)
    begin, end = HEAD_BYTES + coded, HEAD_BYTES + coded + n_frames * FRAME.size
    if end <= len(data):
        at = end
        for entry in range(begin, end, FRAME.size):
            n_bytes, _ = FRAME.unpack_from(data, entry)
            FRAME.pack_into(data, entry, n_bytes, _core.checksum(bytes(data[at : at + n_bytes])))
            at += n_bytes
        head = [*HEAD.unpack_from(data)]
        head[6] = _core.checksum(bytes(data[HEAD_BYTES:end]))
        HEAD.pack_into(data, 0, *head)
    CHECKSUM.pack_into(data, HEAD.size, _core.checksum(bytes(data[: HEAD.size])))
    return bytes(data)
