"""Verifying a drafted token, and how sure its draft was: twin of csrc/generation/sample."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from tests.generation.twins.draw import (
    TOO_LIGHT,
    exp_nonpositive,
    scale_of,
    sums_of_tiles,
    times,
    truncate,
)


def verify(
    target: NDArray[np.float32],
    draft: NDArray[np.float32] | None,
    mask: NDArray[np.int32] | None,
    token: int,
    accept: float,
    draw: float,
    *,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
) -> tuple[bool, int, float]:
    """Accept a drafted token, or draw another one, so that what comes has the target's distribution.

    Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023.

    Parameters
    ----------
    target, draft : (n_vocab,) float32
        Logits; None: the draft had no choice.
    mask : (ceil(n_vocab / 32),) int32 or None
        Bit j % 32 of word j // 32 allows token j.
    token
        Drawn from the draft's distribution.
    accept, draw
        Random numbers in [0, 1), for the test and for another token.
    temperature, top_k, top_p, min_p
        As in `draw`, of both distributions.

    Returns
    -------
    accepted : bool
    token : int
        The drafted one, or the one in its place.
    log_p : float
        Of the token with the target, of all tokens at temperature 1, in nats.
    """
    distribution = partial(_distribution, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    p = distribution(target, mask)
    q = np.zeros(len(p))
    if draft is None:
        q[token] = 1
    else:
        q = distribution(draft, mask)
    accepted = bool(accept * q[token] < p[token])
    if not accepted:
        rest = np.maximum(0, p - q)
        if draft is None:  # also where the target gives it less than all
            rest[token] = 0
        sums = rest.cumsum()
        if sums[-1] > 0:
            beyond = np.flatnonzero((sums > draw * sums[-1]) & (rest > 0))
            token = int(beyond[0] if len(beyond) else np.flatnonzero(rest)[-1])
    largest = target.max()
    total = sums_of_tiles(exp_nonpositive(target - largest)).cumsum()[-1]
    return accepted, token, float(float(target[token]) - (np.log(total) + float(largest)))


def certainty(
    logits: NDArray[np.float32], mask: NDArray[np.int32] | None, token: int
) -> tuple[float, float, float]:
    """Compute how sure a distribution is, at temperature 1, of the tokens that a mask allows.

    Parameters
    ----------
    logits : (n_vocab,) float32
    mask : (ceil(n_vocab / 32),) int32 or None
    token
        One that was drawn.

    Returns
    -------
    entropy : float
        In nats: log S / peak - sum w x / S, where w are the weights exp(logit - largest) of the allowed
        tokens, S their sum, peak the largest of them, and x the logits less the largest allowed one.
    top_p, token_p : float
        Probabilities of the most likely token, and of this one.
    """
    allowed = _bits(mask, len(logits))
    weights = _weights(logits, allowed)
    total = sums_of_tiles(weights).cumsum()[-1]
    x = np.where(weights > 0, logits - logits[allowed].max(), np.float32(0))
    products = sums_of_tiles(weights * x).cumsum()[-1]
    top_p = float(weights.max()) / total
    beside = exp_nonpositive(x[[token]])[0]
    return float(np.log(total / weights.max()) - products / total), top_p, top_p * float(beside)


def _distribution(
    logits: NDArray[np.float32],
    mask: NDArray[np.int32] | None,
    *,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
) -> NDArray[np.float64]:
    allowed = _bits(mask, len(logits))
    weights = _weights(logits, allowed)
    logits = np.where(allowed, logits, np.float32(-np.inf))
    scale = scale_of(temperature)
    if top_k == 0 and top_p == 1 and min_p == 0:
        if temperature != 1:
            weights = exp_nonpositive(times(logits - logits.max(), scale))
        return weights / sums_of_tiles(weights).cumsum()[-1]
    tokens = truncate(logits, weights, top_k=top_k, top_p=top_p, min_p=min_p)
    left = np.zeros(len(logits))
    left[tokens] = exp_nonpositive(times(logits[tokens] - logits[tokens[0]], scale))
    return left / left[tokens].cumsum()[-1]


def _weights(logits: NDArray[np.float32], allowed: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Weights of the tokens that are allowed, beside the most likely one of these if all are light."""
    weights = np.where(allowed, exp_nonpositive(logits - logits.max()), np.float32(0))
    if weights.max() < TOO_LIGHT:
        allowed_logits = np.where(allowed, logits, np.float32(-np.inf))
        weights = exp_nonpositive(allowed_logits - allowed_logits.max())
    return weights


def _bits(mask: NDArray[np.int32] | None, n: int) -> NDArray[np.bool_]:
    if mask is None:
        return np.ones(n, bool)
    return np.unpackbits(mask.view(np.uint8), count=n, bitorder="little").view(np.bool_)
