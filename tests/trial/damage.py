"""Damage of bytes, such as accidents and attackers do."""

from __future__ import annotations

import struct

import numpy as np

EDGES = [0, 1, 2, 3, 4, 31, 32, 33, 63, 64, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40]
EDGES += [2**56, 2**60, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 31]


def damage(header: bytes, rng: np.random.Generator) -> bytes:
    """One to four changes: bytes, 4 or 8 byte numbers at their edges, cuts, repetitions."""
    data = bytearray(header)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(0, len(data)))
        kind = rng.integers(0, 8)
        if kind < 2:
            data[at] = rng.integers(0, 256)
        elif kind == 2:
            data[at] ^= 1 << int(rng.integers(0, 8))
        elif kind < 6:
            size = int(rng.choice([4, 8]))
            edge = EDGES[rng.integers(0, len(EDGES))]
            number = struct.pack("<Q", edge)[:size]
            data[at : at + size] = number
        elif kind == 6:
            other = int(rng.integers(0, len(data)))
            n = int(rng.integers(1, 40))
            data[at : at + n] = data[other : other + n]
        else:
            n = int(rng.integers(1, 20))
            data[at:at] = data[at : at + n]
    return bytes(data)
