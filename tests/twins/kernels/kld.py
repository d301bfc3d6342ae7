"""Measure what logits say of tokens and of other logits: twin of csrc/kernels/kld.h."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def negative_log_likelihood(logits: NDArray[np.float32], targets: NDArray[np.int32]) -> NDArray[np.float64]:
    """Compute how improbable targets are: log sum exp of a row of logits, less the logit of its target.

    Parameters
    ----------
    logits : (n, n_vocab) float32
    targets : (n,) int32
        Index of each row's token.

    Returns
    -------
    (n,) float64
        In nats.
    """
    largest = logits.max(axis=1, keepdims=True)
    sums = np.exp(logits - largest).sum(axis=1, dtype=np.float64)
    chosen = np.take_along_axis(logits, targets[:, None].astype(np.int64), axis=1)
    return np.log(sums) - (chosen.astype(np.float64) - largest)[:, 0]


def compare_logits(
    base: NDArray[np.float32], logits: NDArray[np.float32], targets: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
    """Compare the logits of a model with those of its base, token by token.

    Parameters
    ----------
    base, logits : (n, n_vocab) float32
    targets : (n,) int32
        Index of each row's token.

    Returns
    -------
    nll : (n,) float64
        The model's negative log-likelihood of the targets, in nats.
    kld : (n,) float64
        Sum over tokens of p_base log(p_base / p), in nats: the KLD (Kullback and Leibler, 1951).
    same_top : (n,) bool
        Whether both have their largest logit at the same token.
    overlap : (n,) float64
        Sum over tokens of min(p_base, p): how often speculative sampling accepts a token of the model
        (Leviathan et al., "Fast inference from transformers via speculative decoding", 2023).
    """

    def log_softmax(x: NDArray[np.float32]) -> NDArray[np.float64]:
        shifted = x.astype(np.float64) - x.max(axis=1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))

    p, q = log_softmax(base), log_softmax(logits)
    nll = -np.take_along_axis(q, targets[:, None].astype(np.int64), axis=1)[:, 0]
    with np.errstate(invalid="ignore"):
        kld = np.where(np.exp(p) > 0, np.exp(p) * (p - q), 0).sum(axis=1)
    overlap = np.exp(np.minimum(p, q)).sum(axis=1)
    return nll, kld, base.argmax(axis=1) == logits.argmax(axis=1), overlap
