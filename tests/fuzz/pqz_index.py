"""The index of a pqz file, from any bytes: the GGUF's size, how many frames there are, and the JSON.

The first 8 bytes are the size, the next one the number of frames; the others are the JSON. Checksums are
right. The file is read, or refused.
"""

from __future__ import annotations

import struct

from pyquant import _core
from pyquant.models.pqz import block_layout, index, pqz_file
from pyquant.models.pqz.block_layout import TEXT, kernel
from pyquant.models.pqz.pqz_file import PqzFile
from tests.fuzz.watched import watch

SIZE = struct.Struct("<QB")


def make(data: bytes) -> bytes:
    """Make a pqz file whose frames are empty."""
    n_bytes, n_frames = SIZE.unpack_from(data.ljust(SIZE.size, b"\0"))
    described = data[SIZE.size :]
    coded = _core.encode_frame(kernel(TEXT), described)
    tail = coded + index.FRAME.pack(0, 0) * n_frames
    rest = (n_frames, len(coded), len(described), n_bytes, _core.checksum(tail), bytes(32))
    head = index.HEAD.pack(index.MAGIC, index.VERSION, *rest)
    return head + index.CHECKSUM.pack(_core.checksum(head)) + tail


if __name__ == "__main__":
    watch(PqzFile, make, [index, pqz_file, block_layout])
