"""csrc/compensate as text: numpy twins of its searches for scales and of its rounding, bit for bit.

All is float32, and sums run in the order in which the kernels add. Arrays have columns first and rows
last, as the kernels have them in vectors: a block's weights x are (32, n_rows), the weights w of their
squared errors (32,). A level is what a code stands for in multiples of its block's scale; a weight
becomes scale * level - minimum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.histogram import IQ4_NL_VALUES
from pyquant.reference import store_q4_t, store_q8_0
from pyquant.tensor_type import TensorType as Type

SUB = 32  # columns that share a scale
SUPER = 256  # columns that share the scale of their scales
TRIALS_ALONE = 3  # where no errors are passed on
LARGEST = np.float32(3.0e38)

Floats = NDArray[np.float32]

# Factors on the scale at which the extreme weight meets the first or the last level.
SCALE_FACTORS = [np.float32(0.76) + np.float32(f) * np.float32(0.05) for f in range(9)]
# And on the scale so found, or steps from it, that are tried with errors passed on.
BLOCK_TRIALS = (1, 0.97, 1.03, 0.94, 1.06, 0.91, 1.09)
XS_TRIALS = (0, -1, 1, -2, 2)
K_TRIALS = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1))


def _inverse(x: Floats) -> Floats:
    return np.where(x != 0, np.float32(1) / x, np.float32(0))


def _clip(x: Floats, low: float, high: float) -> Floats:
    """A NaN becomes `low`."""
    x = np.where(x > low, x, np.float32(low))
    return np.where(x < high, x, np.float32(high))


def _nearest(x: Floats) -> Floats:
    """To integers, halves to even, without a -0."""
    shift = np.float32(1.5 * 2**23)
    return (x + shift) - shift


class Levels(Protocol):
    first: np.float32
    last: np.float32

    def round(self, x: Floats) -> Floats:
        """The level of each number."""
        raise NotImplementedError

    def code(self, level: Floats) -> NDArray[np.uint8]:
        raise NotImplementedError


class IntegerLevels:
    """All integers between two; the first has code 0."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = np.float32(first), np.float32(last)

    def round(self, x: Floats) -> Floats:
        return _nearest(_clip(x, self.first, self.last))

    def code(self, level: Floats) -> NDArray[np.uint8]:
        return (level - self.first).astype(np.uint8)


class TableLevels:
    """Ascending integers (n,) and the codes (n,) that stand for them; halfway between two the lower one."""

    def __init__(self, values: NDArray[np.int8], codes: NDArray[np.uint8]) -> None:
        self._values, self._codes = values.astype(np.float32), codes
        self._bounds = (self._values[1:] + self._values[:-1]) / 2
        self.first, self.last = self._values[0], self._values[-1]

    def _index(self, x: Floats) -> NDArray[np.int64]:
        return (x[..., None] > self._bounds).sum(axis=-1)

    def round(self, x: Floats) -> Floats:
        return self._values[self._index(x)]

    def code(self, level: Floats) -> NDArray[np.uint8]:
        return self._codes[self._index(level)]


def search_scale(x: Floats, w: Floats, levels: Levels) -> Floats:
    """(n_rows,): of the least squares fits to the codes that candidates give, the one of least error."""
    extreme = x[0]
    for k in range(1, SUB):
        extreme = np.where(np.abs(x[k]) > np.abs(extreme), x[k], extreme)
    tried = np.array([factor / end for end in (levels.first, levels.last) for factor in SCALE_FACTORS])
    inv = _inverse(extreme * tried[:, None])
    xq, qq = np.zeros_like(inv), np.zeros_like(inv)
    for k in range(SUB):
        q = levels.round(x[k] * inv)
        xq += w[k] * (x[k] * q)
        qq += w[k] * (q * q)
    fit = xq * _inverse(qq)
    explained = fit * xq
    best, scale = np.full_like(extreme, -1), np.zeros_like(extreme)
    for f in range(len(tried)):
        better = explained[f] > best
        best = np.where(better, explained[f], best)
        scale = np.where(better, fit[f], scale)
    return scale


def search_scale_and_minimum(x: Floats, w: Floats, highest: int) -> tuple[Floats, Floats]:
    """(n_rows,) each, both >= 0: the same for codes 0..highest above a minimum."""
    levels = IntegerLevels(0, highest)
    low, high, sum_x, sum_w = x[0], x[0], np.zeros_like(x[0]), np.float32(0)
    for k in range(SUB):
        low = np.where(low < x[k], low, x[k])
        high = np.where(high > x[k], high, x[k])
        sum_x = sum_x + w[k] * x[k]
        sum_w = sum_w + w[k]
    low = np.where(low < 0, low, np.float32(0))
    steps = np.float32(highest) + np.float32(0.25) * np.arange(-4, 5, dtype=np.float32)
    inv = steps[:, None] * _inverse(high - low)
    sum_c, sum_cc, sum_xc = np.zeros_like(inv), np.zeros_like(inv), np.zeros_like(inv)
    for k in range(SUB):
        c = levels.round((x[k] - low) * inv)
        sum_c += w[k] * c
        sum_cc += w[k] * (c * c)
        sum_xc += w[k] * (x[k] * c)
    inverse_determinant = _inverse(sum_w * sum_cc - sum_c * sum_c)
    scale = (sum_w * sum_xc - sum_x * sum_c) * inverse_determinant
    offset = (sum_cc * sum_x - sum_c * sum_xc) * inverse_determinant
    above = offset > 0
    scale = np.where(above, sum_xc * _inverse(sum_cc), scale)
    offset = np.where(above, np.float32(0), offset)
    error = scale * (scale * sum_cc - 2 * sum_xc) + offset * (offset * sum_w - 2 * sum_x)
    error = error + 2 * scale * offset * sum_c
    best, chosen, minimum = np.full_like(low, LARGEST), np.zeros_like(low), np.zeros_like(low)
    for f in range(len(steps)):
        better = (error[f] < best) & (scale[f] >= 0)
        best = np.where(better, error[f], best)
        chosen = np.where(better, scale[f], chosen)
        minimum = np.where(better, -offset[f], minimum)
    return chosen, minimum


def find_positions(x: Floats, w: Floats, values: NDArray[np.int8]) -> NDArray[np.float64]:
    """(4096,): what is kept for learning a table of weights (n_rows, n_per_row), column weights
    (n_per_row,) and values (16,): by the weight's place in multiples of its block's scale, in bins from
    -128 on, the sum of w scale^2. Equal up to the order of summation in float64."""
    levels = TableLevels(values, np.zeros(len(values), np.uint8))
    sums = np.zeros(256 * _core.BINS_PER_LEVEL)
    with np.errstate(all="ignore"):
        for at in range(0, x.shape[1], SUB):
            block, of_block = x[:, at : at + SUB].T, w[at : at + SUB]
            scale = search_scale(block, of_block, levels)
            place = block * _inverse(scale)
            place = _clip(place, -127.99, 127.99)
            bins = ((place + np.float32(128)) * np.float32(_core.BINS_PER_LEVEL)).astype(np.int32)
            np.add.at(sums, bins, (of_block[:, None] * (scale * scale)).astype(np.float64))
    return sums


@dataclass(frozen=True)
class Trials:
    """What may be tried for a sub-block, the likeliest first.

    scale, minimum: (n_trials, n_rows). stored: what the file has of them, (n_trials, n_rows) each.
    """

    scale: Floats
    minimum: Floats
    stored: Sequence[NDArray[Any]]


class Format(Protocol):
    """How scales are found and blocks are stored.

    columns: of a block. open: of a block's columns as far as they are known when it is entered, what
    `trials` and `store` want to know. store: given of every sub-block what was taken of Trials.stored,
    (n_subs, n_rows), and the codes (columns, n_rows), the bytes (n_rows, n_bytes).
    """

    columns: int
    levels: Levels

    def open(self, x: Floats, w: Floats) -> Any: ...

    def trials(self, opened: Any, x: Floats, w: Floats) -> Trials: ...

    def store(self, opened: Any, taken: Sequence[NDArray], codes: NDArray[np.uint8]) -> NDArray[np.uint8]: ...


@dataclass(frozen=True)
class BlockFormat:
    """One fp16 scale for 32 columns. pack: of scales (n_rows,) and codes (n_rows, 32), the bytes."""

    columns: ClassVar = SUB
    levels: Levels
    pack: Callable[[NDArray[np.float16], NDArray[np.uint8]], NDArray[np.uint8]]

    def open(self, x, w):
        return None

    def trials(self, opened, x, w):
        tried = np.array(BLOCK_TRIALS, np.float32)[:, None]
        halves = (search_scale(x, w, self.levels) * tried).astype(np.float16)
        return Trials(halves.astype(np.float32), np.zeros(halves.shape, np.float32), [halves])

    def store(self, opened, taken, codes):
        return self.pack(taken[0][0], codes.T)


@dataclass(frozen=True)
class UniformFormat:
    """One fp16 scale for a whole matrix, in blocks of Q8_0; in blocks that do not fit its first double by
    which they do, with room for what is passed on."""

    columns: ClassVar = SUB
    levels: ClassVar = IntegerLevels(-127, 127)
    step: np.float16

    def open(self, x, w):
        return None

    def trials(self, opened, x, w):
        largest, scale = np.abs(x).max(axis=0), np.full(x.shape[1], self.step, np.float32)
        while (grows := (largest > 112 * scale) & (scale < 32768)).any():
            scale[grows] *= 2
        return Trials(scale[None], np.zeros_like(scale[None]), [scale[None].astype(np.float16)])

    def store(self, opened, taken, codes):
        return store_q8_0(taken[0][0], (codes.T - np.uint8(127)).view(np.int8))


class Iq4XsFormat:
    """An fp16 scale for 256 columns and a factor of -32..31 on it for each 32."""

    columns = SUPER
    levels = TableLevels(IQ4_NL_VALUES, np.arange(16, dtype=np.uint8))

    def open(self, x, w):
        extreme = np.zeros_like(x[0])
        for at in range(0, SUPER, SUB):
            scale = search_scale(x[at : at + SUB], w[at : at + SUB], self.levels)
            extreme = np.where(np.abs(scale) > np.abs(extreme), scale, extreme)
        return (extreme / np.float32(-32)).astype(np.float16)

    def trials(self, opened, x, w):
        d = opened.astype(np.float32)
        factor = _nearest(search_scale(x, w, self.levels) * _inverse(d))
        tried = _clip(factor + np.array(XS_TRIALS, np.float32)[:, None], -32, 31)
        return Trials(d * tried, np.zeros_like(tried), [(tried + 32).astype(np.uint8)])

    def store(self, opened, taken, codes):
        factor = taken[0].astype(np.uint16)
        high = sum((factor[sub] >> 4) << 2 * sub for sub in range(len(factor))).astype(np.uint16)
        low = ((factor[0::2] & 15) | (factor[1::2] & 15) << 4).astype(np.uint8).T
        blocks = codes.T.reshape(len(opened), -1, 2, SUB // 2)
        nibbles = blocks[:, :, 0] | blocks[:, :, 1] << 4
        return np.hstack([_bytes(opened), _bytes(high), low, nibbles.reshape(len(opened), -1)])


class KFormat:
    """Q4_K and Q5_K: fp16 scales of scales and of minima for 256 columns, a factor of 0..63 on either
    for each 32."""

    columns = SUPER

    def __init__(self, n_bits: int) -> None:
        self._highest = 2**n_bits - 1
        self.levels = IntegerLevels(0, self._highest)

    def open(self, x, w):
        largest = np.zeros((2, x.shape[1]), np.float32)
        for at in range(0, SUPER, SUB):
            found = search_scale_and_minimum(x[at : at + SUB], w[at : at + SUB], self._highest)
            largest = np.where(largest > found, largest, found)
        return (largest / np.float32(63)).astype(np.float16)

    def trials(self, opened, x, w):
        whole = opened.astype(np.float32)
        ratio = np.array(search_scale_and_minimum(x, w, self._highest)) * _inverse(whole)
        found = _nearest(np.where(ratio < 63, ratio, np.float32(63)))
        scale, minimum = (
            _clip(f + np.array(steps, np.float32)[:, None], 0, 63) for f, steps in zip(found, zip(*K_TRIALS))
        )
        return Trials(
            whole[0] * scale, whole[1] * minimum, [scale.astype(np.uint8), minimum.astype(np.uint8)]
        )

    def store(self, opened, taken, codes):
        s, m = taken  # 6 bits each: 4 + 4 whole ones, then 4 + 4 in two parts
        packed = [s[:4] | (s[4:] >> 4) << 6, m[:4] | (m[4:] >> 4) << 6, (s[4:] & 15) | (m[4:] & 15) << 4]
        blocks = codes.reshape(-1, SUB, codes.shape[1])
        high = [sum((blocks[sub] >> 4) << sub for sub in range(len(blocks)))] if self._highest > 15 else []
        low = [(blocks[sub] & 15) | (blocks[sub + 1] & 15) << 4 for sub in range(0, len(blocks), 2)]
        return np.hstack([_bytes(opened[0]), _bytes(opened[1]), np.vstack([*packed, *high, *low]).T])


def _bytes(numbers: NDArray) -> NDArray[np.uint8]:
    return np.ascontiguousarray(numbers)[:, None].view(np.uint8)


def table_format(container: Type, values: NDArray[np.int8], codes: NDArray[np.uint8]) -> BlockFormat:
    """Of blocks with one scale (Q4_0, Q8_0 or Q4_T) whose codes stand for ascending values, (n,) each."""
    return BlockFormat(TableLevels(values, codes), _pack_bytes if container is Type.Q8_0 else store_q4_t)


def _pack_bytes(scales: NDArray[np.float16], codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return store_q8_0(scales, np.ascontiguousarray(codes).view(np.int8))


FORMATS: dict[Type, Format] = {
    Type.Q4_0: BlockFormat(IntegerLevels(-8, 7), store_q4_t),
    Type.IQ4_NL: table_format(Type.IQ4_NL, IQ4_NL_VALUES, np.arange(16, dtype=np.uint8)),
    Type.IQ4_XS: Iq4XsFormat(),
    Type.Q4_K: KFormat(4),
    Type.Q5_K: KFormat(5),
}


def encode(x: Floats, factor: _core.Factor, form: Format) -> tuple[NDArray[np.uint8], Floats]:
    """Rows (n_rows, n_per_row) to what is stored of them, (n_rows, n_bytes), and what that decodes to."""
    order, upper = factor.order, factor.upper
    weight = np.ascontiguousarray(x[:, order].T)
    value, error = np.empty_like(weight), np.empty_like(weight)
    blocks = [np.empty(0, np.uint8)] * (len(order) // form.columns)
    with np.errstate(all="ignore"):
        for begin in range(0, len(order), form.columns):
            columns = slice(begin, begin + form.columns)
            target = weight[columns].copy()
            _feed_back(upper, range(begin), columns, error, target)
            at = order[columns] % form.columns
            stored, w = np.empty_like(target), np.empty(form.columns, np.float32)
            stored[at], w[at] = target, factor.diagonal[columns]
            opened = form.open(stored, w)
            codes = np.empty(target.shape, np.uint8)
            taken: list[Any] = [None] * (form.columns // SUB)
            for first in range(begin, begin + form.columns, SUB):
                columns = slice(first, first + SUB)
                aim = target[first - begin : first - begin + SUB]
                _feed_back(upper, range(begin, first), columns, error, aim)
                u = None if upper is None else upper[columns, columns]
                trials = form.trials(opened, aim, factor.diagonal[columns])
                best = _best(trials, form.levels, weight[columns], aim, factor.diagonal[columns], u)
                value[columns] = best.value
                error[columns] = weight[columns] - best.value
                at = order[columns] % form.columns
                codes[at] = form.levels.code(best.level)
                taken[at[0] // SUB] = best.stored
            of_block = [np.stack(of_subs) for of_subs in zip(*taken)]
            blocks[order[begin] // form.columns] = form.store(opened, of_block, codes)
    decoded = np.empty_like(x)
    decoded[:, order] = value.T
    return np.hstack(blocks), decoded


def _feed_back(upper: Floats | None, done: range, columns: slice, error: Floats, target: Floats) -> None:
    if upper is not None:
        for j in done:
            target += error[j] * upper[j, columns][:, None]


@dataclass(frozen=True)
class _Taken:
    """level, value: (32, n_rows). stored: as Trials has it, (n_rows,) each."""

    level: Floats
    value: Floats
    stored: Sequence[NDArray[Any]]


def _best(
    trials: Trials, levels: Levels, weight: Floats, target: Floats, d: Floats, u: Floats | None
) -> _Taken:
    # The trial whose codes, found with errors passed on within the sub-block, cost least.
    shape = (SUB, *trials.scale.shape)
    aim = np.broadcast_to(target[:, None], shape).copy()
    level, value = np.empty(shape, np.float32), np.empty(shape, np.float32)
    inv, cost = _inverse(trials.scale), np.zeros_like(trials.scale)
    for k in range(SUB):
        level[k] = levels.round((aim[k] + trials.minimum) * inv)
        value[k] = trials.scale * level[k] - trials.minimum
        missed = aim[k] - value[k]
        cost += d[k] * (missed * missed)
        if u is not None:
            aim[k + 1 :] += (weight[k] - value[k]) * u[k, k + 1 :, None, None]
    least, chosen = np.full(target.shape[1], LARGEST), np.zeros(target.shape[1], np.int64)
    for t in range(len(cost) if u is not None else min(len(cost), TRIALS_ALONE)):
        better = cost[t] < least
        least, chosen = np.where(better, cost[t], least), np.where(better, t, chosen)
    rows = np.arange(target.shape[1])
    return _Taken(level[:, chosen, rows], value[:, chosen, rows], [s[chosen, rows] for s in trials.stored])
