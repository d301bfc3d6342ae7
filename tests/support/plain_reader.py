"""Another reader of packed models, from docs/methods/pqz_format.md alone: numpy and python-zstandard."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import zstandard


def rans(coded: bytes, n: int) -> bytes:
    """n bytes of one stream of method 1, all lanes at once."""
    frequencies, at = [], 0
    while len(frequencies) < 256:
        if coded[at] == 0:
            frequencies += [0] * (1 + coded[at + 1])
        elif coded[at] < 128:
            frequencies.append(coded[at])
        else:
            frequencies.append(coded[at] - 128 + 128 * coded[at + 1])
        at += 1 if 0 < coded[at] < 128 else 2
    f = np.array(frequencies)
    before = np.cumsum(f) - f
    symbols = np.repeat(np.arange(256), f)
    assert len(symbols) == 4096
    states = np.frombuffer(coded, "<u4", 64, at).astype(np.int64)
    words = np.frombuffer(coded, "<u2", offset=at + 256)
    data = np.zeros(n, np.uint8)
    for begin in range(0, n, 64):
        lanes = states[: n - begin]  # a view
        place = lanes % 4096
        symbol = symbols[place]
        data[begin : begin + 64] = symbol
        lanes[:] = f[symbol] * (lanes // 4096) + place - before[symbol]
        low = lanes < 65536
        lanes[low] = 65536 * lanes[low] + words[: low.sum()]
        words = words[low.sum() :]
    assert len(words) == 0
    assert (states == 65536).all()
    return data.tobytes()


def stream(coded: bytes, n: int) -> bytes:
    """n bytes of one stream."""
    return {0: zstandard.decompress, 1: rans}[coded[0]](coded[1:], n)


def frame(coded: bytes, lengths: list[int], n: int) -> bytes:
    """n bytes of blocks whose fields have these lengths."""
    n_blocks = n // sum(lengths)
    sizes = struct.unpack_from(f"<{len(lengths)}I", coded)
    at, fields = 4 * len(lengths), []
    for size, length in zip(sizes, lengths):
        data = stream(coded[at : at + size], n_blocks * length)
        fields.append(np.frombuffer(data, np.uint8).reshape(n_blocks, length))
        at += size
    assert at == len(coded)
    return np.concatenate(fields, axis=1).tobytes()


def read(path: Path) -> bytes:
    """The GGUF."""
    data = path.read_bytes()
    magic, version, n_frames, n_coded, n_description, n_gguf = struct.unpack_from("<8sIIIIQ", data)
    assert (magic, version) == (b"PYQUANTZ", 2)
    at = 80
    index = json.loads(frame(data[at : at + n_coded], [1], n_description))
    coded = np.frombuffer(data, [("n", "<u4"), ("xxh3", "<u8")], n_frames, at + n_coded)["n"].tolist()
    at += n_coded + 12 * n_frames
    gguf, gaps, end = bytearray(n_gguf), [], 0
    for tensor in index["tensors"]:
        gaps.append((end, tensor["begin"]))
        end = tensor["begin"] + tensor["n_bytes"]
    gaps.append((end, n_gguf))
    parts = [([1], sum(end - begin for begin, end in gaps))]
    for tensor in index["tensors"]:
        parts.append(([field["length"] for field in index["layouts"][tensor["type"]]], tensor["n_bytes"]))
    expanded = []
    for lengths, n in parts:
        size = max(1, index["frame_bytes"] // sum(lengths)) * sum(lengths)
        blocks = b""
        for begin in range(0, n, size):
            n_frame = coded.pop(0)
            blocks += frame(data[at : at + n_frame], lengths, min(size, n - begin))
            at += n_frame
        expanded.append(blocks)
    assert at == len(data)
    rest = expanded[0]
    for begin, end in gaps:
        gguf[begin:end], rest = rest[: end - begin], rest[end - begin :]
    for tensor, blocks in zip(index["tensors"], expanded[1:]):
        gguf[tensor["begin"] : tensor["begin"] + tensor["n_bytes"]] = blocks
    return bytes(gguf)
