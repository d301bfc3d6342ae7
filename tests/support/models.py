"""Generated models for tests to take apart, and a way to seal a damaged .pqz file anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter
from numpy.typing import NDArray

from pyquant import _core
from pyquant.data.generated import GeneratedModel
from pyquant.models.pqz.index import CHECKSUM, FRAME, HEAD, HEAD_BYTES
from tests.support.gguf_file import finish


@dataclass(frozen=True)
class Model(GeneratedModel):
    """A generated model with what only tests want.

    alignment: of the tensors' data, if not GGUF's own; tokenizer: whether there is one; change: given each
    tensor's name and float32 weights, in numpy's order, what they become.
    """

    alignment: int | None = None
    tokenizer: bool = True
    change: Callable[[str, NDArray[np.float32]], NDArray[np.float32]] = lambda name, x: x

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        return {name: self.change(name, x) for name, x in super().tensors().items()}

    def write(self, path: Path, *, tensors_per_shard: int = 0) -> Path:
        """The model at `path`, or its shards beside; returns the (first) file."""
        if not tensors_per_shard:
            return super().write(path)
        writer = GGUFWriter(path, "llama", split_max_tensors=tensors_per_shard)
        self.add_to(writer)
        finish(writer)
        return min(path.parent.glob(f"{path.stem}-00001-of-*.gguf"))

    def add_to(self, writer: GGUFWriter) -> None:
        if self.alignment:
            writer.add_custom_alignment(self.alignment)
        super().add_to(writer)

    def add_tokenizer(self, writer: GGUFWriter) -> None:
        if self.tokenizer:
            super().add_tokenizer(writer)


def with_too_large_inputs(name: str, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Change a `Model`: squares of what enters gate and up of layer 1 overflow, and nothing else does."""
    factors = {"blk.1.ffn_norm.weight": 1e21, "blk.1.ffn_gate.weight": 1e-21, "blk.1.ffn_up.weight": 1e-21}
    return np.float32(factors.get(name, 1)) * x


def _shut(name: str, x: NDArray[np.float32]) -> NDArray[np.float32]:
    if name == "blk.0.ffn_gate_inp.weight":
        x[2:] = 0  # logits of 0, and the others' below or above together
        x[:2] = 1
        x[1] = 0.5
    return x * 0 + 1 if name == "blk.0.ffn_norm.weight" else x


# Tokens go to some of the experts, and never to the others.
WITH_SHUT_EXPERTS = Model(n_embd=64, n_ff=96, n_layer=1, n_expert=8, seed=5, change=_shut)

IN_THE_BOX = "bundled model"  # pyquant.data.model_path(), for fixture `source`
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
