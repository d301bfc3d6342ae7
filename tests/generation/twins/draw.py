"""Drawing tokens from logits: twin of csrc/generation/sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LANES = 16
TILE = 512
TOO_LIGHT = np.float32(1e-26)  # where all that a mask allows weighs less, weights are computed anew


def exp_nonpositive(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Compute exp(x) for x <= 0 as csrc/kernels/softmax.h does: 2^k times a Taylor polynomial of degree 7.

    Parameters
    ----------
    x : float32, any shape
    """
    f = np.float32
    bounded = np.maximum(x, f(-87))
    k = (bounded * f(1.44269504) + f(12582912)) - f(12582912)
    r = (bounded - k * f(0.693359375)) - k * f(-2.12194440e-4)
    p = np.full_like(r, f(1) / f(5040))
    for coefficient in (f(1) / f(720), f(1) / f(120), f(1) / f(24), f(1) / f(6), f(0.5), f(1), f(1)):
        p = p * r + coefficient
    power = ((k.astype(np.int32) + 127).astype(np.uint32) << np.uint32(23)).view(np.float32)
    return np.where(x < f(-87), f(0), p * power)


def draw(
    logits: NDArray[np.float32],
    mask: NDArray[np.int32] | None,
    uniform: float,
    *,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
) -> tuple[int, float, float]:
    """Draw a token of one row.

    Parameters
    ----------
    logits : (n_vocab,) float32
    mask : (ceil(n_vocab / 32),) int32 or None
        Bit j % 32 of word j // 32 allows token j.
    uniform
        In [0, 1): where to cut the sum of probabilities.
    temperature
        What logits are divided by; 0: the most likely token is taken.
    top_k, top_p, min_p
        What is left of the vocabulary, in this order, as llama.cpp does it; 0, 1, 0: all of it.

    Returns
    -------
    token : int
        -1 if the mask allows none.
    log_p : float
        Of the token, at temperature 1, in nats.
    allowed : float
        Share of the probability that the mask leaves.
    """
    largest = logits.max()
    weights = exp_nonpositive(logits - largest)
    free_total = sums_of_tiles(weights).cumsum()[-1]
    log_sum = np.log(free_total) + float(largest)
    allowed = 1.0
    if mask is not None:
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(logits)].astype(bool)
        weights = np.where(bits, weights, np.float32(0))
        allowed = float(sums_of_tiles(weights).cumsum()[-1] / free_total)
        if not bits.any():
            return -1, 0.0, allowed
        logits = np.where(bits, logits, np.float32(-np.inf))
        if weights.max() < TOO_LIGHT:
            largest = logits.max()
            weights = exp_nonpositive(logits - largest)
    scale = scale_of(temperature)
    if temperature == 0:
        token = int(logits.argmax())
    elif top_k == 0 and top_p == 1 and min_p == 0:
        if temperature != 1:
            weights = exp_nonpositive(times(logits - logits.max(), scale))
        token = _invert(weights, uniform)
    else:
        tokens = truncate(logits, weights, top_k=top_k, top_p=top_p, min_p=min_p)
        shares = exp_nonpositive(times(logits[tokens] - logits[tokens[0]], scale)).astype(np.float64).cumsum()
        beyond = np.flatnonzero(shares > uniform * shares[-1])
        token = int(tokens[beyond[0] if len(beyond) else -1])
    return token, float(float(logits[token]) - log_sum), allowed


def truncate(
    logits: NDArray[np.float32], weights: NDArray[np.float32], *, top_k: int, top_p: float, min_p: float
) -> NDArray[np.int64]:
    """Return the tokens that are left, the most likely first, of equally likely ones the lowest first."""
    tokens = np.argsort(-logits, kind="stable")
    tokens = tokens[weights[tokens] > 0]
    total = sums_of_tiles(weights).cumsum()[-1]
    if top_k > 0:
        tokens = tokens[:top_k]
        total = weights[tokens].astype(np.float64).cumsum()[-1]
    if top_p < 1:
        before = np.concatenate([[0.0], weights[tokens].astype(np.float64).cumsum()[:-1]])
        n = int(np.count_nonzero(before < float(np.float32(top_p)) * total))
        tokens = tokens[: max(1, n)]
    if min_p > 0:
        smallest = np.float32(min_p) * weights[tokens[0]]
        tokens = tokens[weights[tokens] >= smallest]
    return tokens


def entropy(logits: NDArray[np.float32]) -> float:
    """Compute the entropy of a row's distribution, in nats: log S - sum w x / S.

    w are the weights exp(x), x the logits less the largest, S the sum of w.
    """
    x = logits - logits.max()
    weights = exp_nonpositive(x)
    total, products = sums_of_tiles(weights).cumsum()[-1], sums_of_tiles(weights * x).cumsum()[-1]
    return float(np.log(total) - products / total)


def scale_of(temperature: float) -> np.float32:
    """Return the factor of logits: finite, as 0 times infinity is no number; 0 at temperature 0."""
    if temperature == 0:
        return np.float32(0)
    with np.errstate(over="ignore"):
        return np.minimum(np.float32(1) / np.float32(temperature), np.finfo(np.float32).max)


def times(x: NDArray[np.float32], scale: np.float32) -> NDArray[np.float32]:
    """Return x times scale, in float32; what is beyond its range becomes infinite."""
    with np.errstate(over="ignore"):
        return x * scale


def sums_of_tiles(weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return sums of tiles: lanes first, each from top to bottom, then from the first lane to the last."""
    n_tiles = -(-len(weights) // TILE)
    padded = np.zeros(n_tiles * TILE)
    padded[: len(weights)] = weights
    lanes = padded.reshape(n_tiles, TILE // LANES, LANES).cumsum(axis=1)[:, -1]
    return lanes.cumsum(axis=1)[:, -1]


def _invert(weights: NDArray[np.float32], uniform: float) -> int:
    sums = sums_of_tiles(weights)
    wanted = uniform * float(sums.cumsum()[-1])
    tile = 0
    while tile + 1 < len(sums) and sums[tile] <= wanted:
        wanted -= float(sums[tile])
        tile += 1
    while tile > 0 and sums[tile] == 0:
        tile -= 1
    inside = weights[tile * TILE : (tile + 1) * TILE].astype(np.float64)
    beyond = np.flatnonzero((inside.cumsum() > wanted) & (inside > 0))
    return tile * TILE + int(beyond[0] if len(beyond) else np.flatnonzero(inside)[-1])
