"""Write a model with its channels in another order: it computes the same, and its weights leave their grid.

    python analysis/shuffle_channels.py MODEL OUT [--seed N]

A model that was quantized once and expanded again lies on the grid of its blocks: each run of 32 weights of a
row has so many values. A type with that grid reproduces it, and what such a model says of types is of little
worth. Here three orders are drawn at random: of the residual stream's channels; of each layer's feed-forward
neurons; and of the values within each head. Rows and columns of the matrices follow. So each block has
weights of many former blocks, each with a scale of its own. Sums are the same but for their order, and so
are attention's positions, as rows of Q and K, and their biases, stay where they are. For llama's architecture
and qwen2's, in floats. Memory: that of one tensor.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFReader, Keys
from numpy.typing import NDArray

from pyquant.errors import ModelFileError, PyquantError
from pyquant.files.output_file import OutputFile

WORDS = {"F16": np.uint16, "BF16": np.uint16, "F32": np.uint32}  # floats are only moved
Order = NDArray[np.int64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    try:
        shuffle_channels(arguments.model, arguments.out, arguments.seed)
    except (PyquantError, OSError) as error:
        sys.exit(f"pyquant: {error}")


def shuffle_channels(model: Path, out: Path, seed: int = 1) -> None:
    """Write the model in another order.

    Parameters
    ----------
    model
        A GGUF, whole, of architecture llama or qwen2, in floats.
    out
        The file to write; it appears complete or not at all.
    seed
        Of the orders.

    Raises
    ------
    ModelFileError
        It is another architecture, or quantized.
    OutputError
        `out` is there, or cannot be written.
    """
    data = np.memmap(model, np.uint8, mode="r")
    reader = GGUFReader(model)
    orders = Orders(reader, model, np.random.default_rng(seed))
    for tensor in reader.tensors:
        if tensor.tensor_type.name not in WORDS:
            raise ModelFileError(f"{model}: {tensor.name} is {tensor.tensor_type.name}; floats are expected")
    with OutputFile(out, len(data), sources=[model], force=False) as file:
        file.write(data[: reader.data_offset].tobytes(), 0)
        for tensor in reader.tensors:
            begin, end = tensor.data_offset, tensor.data_offset + tensor.n_bytes
            words = data[begin:end].view(WORDS[tensor.tensor_type.name])
            matrix = words.reshape(-1, tensor.shape[0])
            rows, columns = orders.of(tensor.name)
            matrix = matrix[:, columns] if rows is None else matrix[rows][:, columns]
            file.write(matrix.tobytes(), begin)
        file.commit()


class Orders:
    """Orders of a model's rows and columns: entry i says which one comes to place i."""

    def __init__(self, reader: GGUFReader, model: Path, random: np.random.Generator) -> None:
        architecture = self._value(reader, Keys.General.ARCHITECTURE)
        if architecture not in ("llama", "qwen2"):
            raise ModelFileError(f"{model}: architecture {architecture}; known here are llama and qwen2")

        def number(key: str) -> int:
            return int(self._value(reader, key.format(arch=architecture)))

        n_embd, n_head = number(Keys.LLM.EMBEDDING_LENGTH), number(Keys.Attention.HEAD_COUNT)
        n_head_kv, width = number(Keys.Attention.HEAD_COUNT_KV), n_embd // n_head
        self._stream = random.permutation(n_embd)
        self._neurons: list[Order] = []
        self._values: list[Order] = []  # rows of V
        self._mixed: list[Order] = []  # what attention mixes of them: heads of a group have one head of V
        for _ in range(number(Keys.LLM.BLOCK_COUNT)):
            self._neurons.append(random.permutation(number(Keys.LLM.FEED_FORWARD_LENGTH)))
            within = np.array([random.permutation(width) for _ in range(n_head_kv)])
            self._values.append((within + width * np.arange(n_head_kv)[:, None]).ravel())
            of_heads = np.repeat(within, n_head // n_head_kv, axis=0)
            self._mixed.append((of_heads + width * np.arange(n_head)[:, None]).ravel())

    @staticmethod
    def _value(reader: GGUFReader, key: str) -> str | int:
        field = reader.get_field(key)
        assert field is not None, key
        value: str | int = field.contents()
        return value

    def of(self, name: str) -> tuple[Order | None, Order | slice]:
        """Return the orders of a tensor's rows and columns; a vector's entries are columns."""
        if not name.startswith("blk."):
            keeps = name.startswith("rope")
            return None, slice(None) if keeps else self._stream
        _, layer, kind, part = name.split(".")
        stream, neurons = self._stream, self._neurons[int(layer)]
        values, mixed = self._values[int(layer)], self._mixed[int(layer)]
        if part == "bias":  # a vector
            return None, {"attn_q": slice(None), "attn_k": slice(None), "attn_v": values}[kind]
        return {
            "attn_norm": (None, stream), "attn_q": (None, stream), "attn_k": (None, stream),
            "attn_v": (values, stream), "attn_output": (stream, mixed), "ffn_norm": (None, stream),
            "ffn_gate": (neurons, stream), "ffn_up": (neurons, stream), "ffn_down": (stream, neurons),
        }[kind]  # fmt: skip


if __name__ == "__main__":
    main()
