"""rANS streams: equal to a twin made from docs/methods/pqz_format.md, at their entropy; damage is refused."""

from __future__ import annotations

import contextlib
import itertools
import struct

import numpy as np
import pytest
from numpy.typing import NDArray

from pyquant import _core
from pyquant.formulas import entropy
from pyquant.models.pqz.block_layout import Field, kernel
from tests.support.plain_reader import rans

CODES = kernel((Field("codes", 1),))


def frequencies(counts: NDArray[np.int64]) -> list[int]:
    n, result = int(counts.sum()), [0] * 256
    for symbol in np.flatnonzero(counts):
        result[symbol] = min(max((int(counts[symbol]) * 4096 + n // 2) // n, 1), 4095)
    while sum(result) < 4096:
        result[max(range(256), key=lambda s: counts[s] / (result[s] + 0.5))] += 1
    while sum(result) > 4096:
        result[
            min((s for s in range(256) if result[s] > 1), key=lambda s: counts[s] / (result[s] - 0.5))
        ] -= 1
    return result


def twin(data: NDArray[np.uint8]) -> bytes:
    """Give what an encoder makes of data, one symbol after the other."""
    f = frequencies(np.bincount(data, minlength=256))
    before = np.cumsum(f) - f
    table = b"".join(
        bytes([0, sum(1 for _ in run) - 1])
        if is_zero
        else b"".join(bytes([x]) if x < 128 else bytes([128 + x % 128, x // 128]) for x in run)
        for is_zero, run in itertools.groupby(f, key=lambda x: x == 0)
    )
    states, words = [65536] * 64, []
    for i in range(len(data) - 1, -1, -1):
        state, symbol = states[i % 64], data[i]
        if state >= f[symbol] << 20:
            words.append(state % 65536)
            state >>= 16
        states[i % 64] = (state // f[symbol]) * 4096 + state % f[symbol] + int(before[symbol])
    return table + struct.pack("<64I", *states) + np.array(words[::-1], "<u2").tobytes()


def normal(spread: float, n: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.rint(spread * np.random.default_rng(seed).normal(size=n)).astype(np.int8).view(np.uint8)


def stream(data: NDArray[np.uint8]) -> bytes:
    """The stream of a frame that holds nothing else, without the byte for its method, which is checked."""
    coded = _core.encode_frame(CODES, data.tobytes())
    assert struct.unpack_from("<I", coded) == (len(coded) - 4,)
    assert coded[4] == 1
    return coded[5:]


def decoded(coded: bytes, n: int) -> bytes:
    return _core.decode_frame(CODES, struct.pack("<I", len(coded) + 1) + b"\1" + coded, n)


@pytest.mark.parametrize(
    "data",
    [
        normal(1, 20_000),
        normal(0.2, 20_063),
        normal(5, 60_001),
        normal(30, 90_032),
        np.random.default_rng(0).integers(0, 85, 60_000).astype(np.uint8),  # all equally frequent
        np.r_[np.zeros(60_000, np.uint8), np.arange(256, dtype=np.uint8)],  # more symbols than their share
        np.r_[np.zeros(99_999, np.uint8), np.uint8(9)],
    ],
    ids=["3 bits", "0.6 bits", "5 bits", "7 bits", "equal", "rare", "one"],
)
def test_streams_equal_their_twins(data: NDArray[np.uint8]) -> None:
    coded = twin(data)
    assert decoded(coded, len(data)) == rans(coded, len(data)) == data.tobytes()
    if len(np.unique(data)) > 2:  # two symbols are cheaper with zstd, which finds repetitions
        assert stream(data) == coded


@pytest.mark.parametrize("n", [1, 63, 64, 65, 127, 128, 1000])
def test_short_streams(n: int) -> None:
    data = normal(3, n, seed=n)
    data[0] ^= 1
    if len(np.unique(data)) < 2:
        data = np.r_[data, data[-1] ^ 1].astype(np.uint8)
    assert decoded(twin(data), len(data)) == data.tobytes()


@pytest.mark.parametrize("spread", [0.3, 1, 4, 12, 40])
def test_codes_take_what_their_entropy_says(spread: float) -> None:
    data = normal(spread, 1 << 20)
    least = entropy(np.bincount(data)) * len(data) / 8
    assert len(stream(data)) < 1.002 * least + 300  # a frequency of 256 symbols, and half of the states


EVEN = bytes([64] * 64 + [0, 191])  # the frequencies of 64 symbols
ENDED = struct.pack("<64I", *[65536] * 64)  # states from which no symbol comes any more


def put(table: bytes, at: int, value: int) -> bytes:
    return table[:at] + bytes([value]) + table[at + 1 :]


@pytest.mark.parametrize(
    ("coded", "n", "says"),
    [
        (b"", 1, "frequencies are cut off"),
        (EVEN[:-1], 1, "frequencies are cut off"),
        (put(EVEN, 0, 65) + ENDED, 0, "frequencies are too large"),
        (b"\x80\x20" + EVEN[1:] + ENDED, 0, "frequencies are too large"),  # 4096 of one symbol
        (b"\xc0\x00" + EVEN[1:] + ENDED, 0, "has two bytes and needs one"),
        (put(EVEN, 0, 63) + ENDED, 0, "frequencies are not of all bytes"),
        (put(EVEN, 65, 192) + ENDED, 0, "frequencies are not of all bytes"),
        (EVEN + ENDED[:-1], 0, "states are cut off"),
        (EVEN + ENDED, 1, "a stream is cut off"),
        (EVEN + ENDED + b"xy", 0, "a stream is too long"),
        (EVEN + ENDED + b"x", 1, "a stream is cut off"),
        (EVEN + struct.pack("<64I", *[65537] * 64), 0, "a stream is too long"),
    ],
)
def test_what_no_encoder_writes(coded: bytes, n: int, says: str) -> None:
    with pytest.raises(_core.DamagedError, match=says):
        decoded(coded, n)


def test_every_byte_matters() -> None:
    data = normal(4, 3000)
    coded = twin(data)
    for at in range(len(coded)):
        changed = put(coded, at, coded[at] ^ 1 << at % 8)
        with contextlib.suppress(_core.DamagedError):
            assert decoded(changed, len(data)) != data.tobytes()
    for n in range(len(coded)):
        with pytest.raises(_core.DamagedError):
            decoded(coded[:n], len(data))
