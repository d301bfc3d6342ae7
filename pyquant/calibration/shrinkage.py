"""Shrink a Hessian of few tokens towards a target that is better known.

Of all (1 - a) H + a T, that with a = sum Var(H_ij) / sum (H_ij - T_ij)^2 is nearest to the true Hessian on
average (Ledoit and Wolf, *Improved estimation of the covariance matrix of stock returns*, 2003). Var(H_ij)
falls as 1 / n with n tokens, so a is about t / (n + t). Tokens that follow each other are alike: the variance
is taken between pieces of the text; between tokens it would come out 3 to 20 times less. All is in units of
the columns' sizes, so that a few large columns do not decide.

Of several texts, the variance is that between texts: others, on which the model will run, differ as much. It
falls as 1 / n with n texts, and has the variance within texts in it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Of what is nearest to the Hessian of all texts: with all of it, texts like those calibrated on lose.
PART = 0.5
COLUMNS = 128  # a sample of them, whose 8,000 pairs tell as much as all


def shrinkage(
    tokens: NDArray[np.float32], n_pieces: int, hessian: NDArray[np.float32], target: NDArray[np.float32]
) -> float:
    """Compute which share of the target is best, from 0 to 1.

    tokens: (n_tokens, n) inputs, in the order of the text.
    n_pieces: into how many pieces the text is cut, which are taken as independent of each other.
    hessian, target: (n, n): the mean of x x^T over the tokens, and what it is shrunk towards. Elements that
    are equal in both do not count.
    """
    n_pieces = min(n_pieces, len(tokens)) // 2 * 2
    apart = hessian - target
    if not n_pieces or not apart.any():
        return 1.0
    size = np.sqrt(np.maximum(target.diagonal(), np.finfo(np.float32).tiny))
    pieces = np.array_split(tokens / size, n_pieces)
    moments = np.stack([piece.T @ piece / np.float32(len(piece)) for piece in pieces])
    variance = np.square(moments[::2] - moments[1::2]).mean(axis=0) / (2 * n_pieces)
    variance[apart == 0] = 0
    return float(min(1, variance.sum() / np.square(apart / np.outer(size, size)).sum()))


def shrinkage_of_texts(moments: NDArray[np.float32], weights: NDArray[np.floating]) -> float:
    """Compute which share of the diagonal is best, from 0 to PART, for these texts and for others like them.

    moments: (n_texts, n, n) the mean of x x^T over the tokens of each, two texts or more.
    weights: (n_texts,) how much each counts.
    """
    parts = np.asarray(weights / weights.sum(), np.float32)
    size = np.sqrt(np.maximum(np.tensordot(parts, moments, 1).diagonal(), np.finfo(np.float32).tiny))
    known = moments / np.outer(size, size)
    of_all = np.tensordot(parts, known, 1)
    of_one = np.tensordot(parts, np.square(known - of_all), 1) / (1 - np.square(parts).sum())
    variance, apart = of_one * np.square(parts).sum(), np.square(of_all)
    for of_pairs in (variance, apart):
        np.fill_diagonal(of_pairs, 0)
    return PART * float(min(1, variance.sum() / apart.sum())) if apart.any() else PART


def sampled_columns(n_in: int) -> NDArray[np.intp]:
    """Choose the columns by which Hessians are shrunk: at random, and always the same."""
    return np.sort(np.random.default_rng(0).permutation(n_in)[:COLUMNS])


def shrink(
    hessian: NDArray[np.float32], target: NDArray[np.float32], tokens: NDArray[np.float32], n_pieces: int
) -> None:
    """Shrink a Hessian towards another.

    hessian, target: (n_in, n_in).
    tokens: (n_tokens, COLUMNS or n_in): what enters the columns that `sampled_columns` chooses.
    n_pieces: as for `shrinkage`.
    """
    known = np.ix_(*2 * [sampled_columns(len(hessian))])
    share = np.float32(shrinkage(tokens, n_pieces, hessian[known], target[known]))
    hessian *= 1 - share
    hessian += share * target


def shrink_to_diagonal(
    hessian: NDArray[np.float32],
    tokens: NDArray[np.float32],
    n_pieces: int,
    texts: NDArray[np.int32] | None = None,
) -> None:
    """Shrink a Hessian towards its diagonal, as `shrink` does: what is known of single columns stays.

    texts: (n_tokens,) the text that each token is of, below 0 for random ones; None: all are of one.
    """
    numbers = [] if texts is None else np.unique(texts[texts >= 0]).tolist()
    if len(numbers) > 1:
        parts = [tokens[texts == number] for number in numbers]
        moments = np.stack([part.T @ part / np.float32(len(part)) for part in parts])
        share = shrinkage_of_texts(moments, np.array([len(part) for part in parts], np.float64))
    else:
        known = hessian[np.ix_(*2 * [sampled_columns(len(hessian))])]
        share = shrinkage(tokens, n_pieces, known, np.diag(known.diagonal()))
    go_to_diagonal(hessian, share)


def go_to_diagonal(hessian: NDArray[np.float32], share: float) -> None:
    """Go a share of the way, from 0 to 1, from a Hessian to its diagonal."""
    diagonal = hessian.diagonal().copy()
    hessian *= np.float32(1 - share)
    np.fill_diagonal(hessian, diagonal)
