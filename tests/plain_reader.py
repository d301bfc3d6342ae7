"""Another reader of packed models, from docs/container.md alone: numpy and python-zstandard."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import zstandard


def stream(coded: bytes, n: int) -> bytes:
    """n bytes of one stream."""
    if coded[0] == 0:
        return zstandard.decompress(coded[1:], n)
    length, n_table = coded[1], coded[2]
    at = 3 + length * n_table
    table = np.frombuffer(coded, np.uint8, length * n_table, 3).reshape(n_table, length)
    (size,) = struct.unpack_from("<I", coded, at)
    symbols = np.frombuffer(zstandard.decompress(coded[at + 4 : at + 4 + size]), np.uint8)
    rest = zstandard.decompress(coded[at + 4 + size :])
    escaped = symbols == n_table
    n_escaped = length * int(escaped.sum())
    groups = np.zeros((len(symbols), length), np.uint8)
    groups[~escaped] = table[symbols[~escaped]]
    groups[escaped] = np.frombuffer(rest[:n_escaped], np.uint8).reshape(-1, length)
    return groups.tobytes() + rest[n_escaped:]


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
    assert (magic, version) == (b"PYQUANTZ", 1)
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
