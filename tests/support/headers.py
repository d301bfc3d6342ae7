"""Headers of models of any architecture and size: GGUF files whose tensors have no bytes on the disk."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pyquant import _core
from tests.support.vendored import patched_llama

F16 = 1
# What readers want of single architectures beyond a key of some value.
WANTED = {
    "deepseek4": {"expert_gating_func": 4},
    "graniteswitch": {"adapters.token_ids_activate": [1, 2], "adapters.token_ids_substitute": [1, 2]},
    "bailingmoe3": {"kda.gate_lower_bound": -1.0},
    "hrm_text": {"hrm.layers_per_stack": 1, "hrm.l_cycles": 1},
    "eagle3": {"target_layers": [0, 1, 2]},
    "dflash": {"target_layers": [0, 1]},
    "glm5-next": {"hyper_connection.count": 4},
}


@cache
def architectures() -> list[str]:
    """Every architecture that the vendored llama.cpp knows, as files name it."""
    source = (patched_llama() / "src" / "llama-arch.cpp").read_text()
    table = source.partition("LLM_ARCH_NAMES = {")[2].partition("};")[0]
    return [name for name in re.findall(r'\{ *LLM_ARCH_\w+, *"([^"]+)" *\}', table) if name != "(unknown)"]


@cache
def layer_counts() -> list[int]:
    """Every number of layers that a rule of llama.cpp's models names, and its neighbours."""
    source = "".join(path.read_text() for path in (patched_llama() / "src" / "models").glob("*.cpp"))
    named = {int(number) for number in re.findall(r"^\s+case (\d+):", source, re.MULTILINE)}
    near = {number + step for number in named if number <= 128 for step in (-1, 0, 1)}
    return sorted(number for number in near if number >= 1)


@dataclass(frozen=True)
class Header:
    """A model that has hyperparameters and tensors, and no weights."""

    architecture: str
    n_layer: int
    n_head: int = 8
    n_head_kv: int = 8
    n_expert: int = 0
    tied: bool = False
    kinds: tuple[str, ...] = (
        "attn_norm", "attn_q", "attn_k", "attn_v", "attn_qkv", "attn_kv_b", "attn_output", "ffn_norm",
        "ffn_gate_inp", "ffn_gate", "ffn_up", "ffn_down", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps",
    )  # fmt: skip
    n_embd: int = 256

    def write(self, path: Path) -> Path:
        """Write the file, sparse, with whatever keys llama.cpp's reader asks for, one after the other.

        A reader that is never content leaves the file as it was then: stock llama.cpp refuses it as well.
        """
        keys = self._keys()
        for _ in range(64):
            size = self._write(path, keys)
            try:
                _core.TypePolicy(os.fsencode(path))
            except (RuntimeError, ValueError) as error:
                if not _add_key(keys, str(error), self):
                    break
            else:
                break
        os.truncate(path, size)
        return path

    def _keys(self) -> dict[str, Any]:
        own = {
            "context_length": 64, "embedding_length": self.n_embd, "block_count": self.n_layer,
            "feed_forward_length": 256, "attention.head_count": self.n_head,
            "attention.head_count_kv": self.n_head_kv, "attention.layer_norm_rms_epsilon": 1e-5,
            "attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": self.n_embd // self.n_head,
        }  # fmt: skip
        if self.n_expert:
            own |= {"expert_count": self.n_expert, "expert_used_count": 2, "expert_feed_forward_length": 256}
        own |= WANTED.get(self.architecture, {})
        if self.architecture == "hrm_text":
            own["hrm.h_cycles"] = max(self.n_layer // 2, 1)
        return {f"{self.architecture}.{key}": value for key, value in own.items()}

    def _tensors(self) -> dict[str, tuple[int, ...]]:
        n, tensors = self.n_embd, {"token_embd.weight": (self.n_embd, 320)}
        if not self.tied:
            tensors["output.weight"] = (n, 320)
        for layer in range(self.n_layer):
            for kind in self.kinds:
                shape = (n,) if kind.endswith("norm") else (n, n, 4) if kind.endswith("exps") else (n, n)
                tensors[f"blk.{layer}.{kind}.weight"] = shape
        return tensors

    def _write(self, path: Path, keys: dict[str, Any]) -> int:
        from gguf import GGUFWriter

        from tests.support.gguf_file import add_keys

        path.unlink(missing_ok=True)
        writer = GGUFWriter(path, self.architecture)
        add_keys(writer, keys)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        header = _core.Gguf.read(os.fsencode(path))  # type: ignore[arg-type]
        for name, shape in self._tensors().items():
            header.add_tensor(name, F16, shape)
        data = header.header()
        path.write_bytes(data)
        size = len(data) + sum(2 * _product(shape) for shape in self._tensors().values())
        os.truncate(path, size)
        return size


def _product(shape: tuple[int, ...]) -> int:
    n = 1
    for length in shape:
        n *= length
    return n


def _add_key(keys: dict[str, Any], error: str, header: Header) -> bool:
    """Add the key that the reader misses, or give the one that it complains of another type."""
    if found := re.search(r"array key not found in model: (\S+)", error):
        keys[found[1]] = [1] * 4
    elif found := re.search(r"key not found in model: (\S+)", error):
        keys[found[1]] = 2
    elif found := re.search(r"key (\S+) has wrong type \w+ but expected type (\w+)", error):
        values = {
            "f32": 1.0,
            "bool": True,
            "str": "none",
            "u32": 2,
            "i32": [1] * 4,
            "arr": [1] * header.n_layer,
        }
        keys[found[1]] = values[found[2]]
    elif found := re.search(r"key (\S+) has wrong array length; expected (\d+), got", error):
        keys[found[1]] = [1] * int(found[2])
    else:
        return False
    return True
