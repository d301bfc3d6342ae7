"""Shrink a Hessian of few tokens towards a target that is better known.

Of all (1 - a) H + a T, that with a = sum Var(H_ij) / sum (H_ij - T_ij)^2 is nearest to the true Hessian on
average (Ledoit and Wolf, *Improved estimation of the covariance matrix of stock returns*, 2003). Var(H_ij)
falls as 1 / n with n tokens, so a is about t / (n + t). Tokens that follow each other are alike: the variance
is taken between pieces of the text; between tokens it would come out 3 to 20 times less. All is in units of
the columns' sizes, so that a few large columns do not decide.

Of several texts, the variance is that between texts: others, on which the model will run, differ as much. It
falls as 1 / n with n texts, and has the variance within texts in it. Random tokens are no text.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Of what is nearest to the Hessian of all texts: with all of it, texts like those calibrated on lose.
PART = 0.5
COLUMNS = 128  # a sample of them, whose 8,000 pairs tell as much as all
LEAST = 1e-5  # of the tokens before a text, those that it is to have for single precision to tell them apart


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


class BetweenTexts:
    """How much texts differ in some columns, summed up text by text.

    n: how many columns. The arrays are (n, n) float64.
    total, count: the sum of x x^T over the tokens of all texts, and these.
    squares: the sum over texts of their own such sums, squared, over their tokens. n_texts: of these.
    """

    def __init__(self, n: int) -> None:
        self.total, self.squares = np.zeros((2, n, n))
        self.count, self.n_texts = 0.0, 0

    def add(self, products: NDArray[np.floating], count: float) -> None:
        """Add a text: the sum of x x^T over its tokens, and how many these are, times their weight.

        One that hardly counts is not told apart: single precision loses it in the sums of others.
        """
        if count > LEAST * self.count:
            self.squares += np.square(products.astype(np.float64)) / count
            self.n_texts += 1
        self.total += products
        self.count += count

    @property
    def share(self) -> float:
        """Compute which share of the diagonal is best, from 0 to PART, for these and others like them.

        The variance of the mean is sum_k p_k (H_k - H)^2 / (n - 1), with p_k the part of the tokens that
        text k has: that of texts that are alike, however long each is, and of those that differ where they
        are as long. Where one of these has nearly all tokens it is too small, and tends to that of one text.

        Returns: 0 of fewer than two texts.
        """
        if self.n_texts < 2:
            return 0.0
        mean = self.total / self.count
        size = np.sqrt(np.maximum(mean.diagonal(), np.finfo(np.float32).tiny))
        size = np.outer(size, size)
        apart = np.square(mean / size)
        variance = (self.squares / self.count / size / size - apart) / (self.n_texts - 1)
        for of_pairs in (variance, apart):
            np.fill_diagonal(of_pairs, 0)
        return PART * float(np.clip(variance.sum() / apart.sum(), 0, 1)) if apart.any() else PART


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
        between = BetweenTexts(tokens.shape[1])
        for number in numbers:
            of_text = tokens[texts == number]
            between.add(of_text.T @ of_text, len(of_text))
        share = between.share
    else:
        known = hessian[np.ix_(*2 * [sampled_columns(len(hessian))])]
        share = shrinkage(tokens, n_pieces, known, np.diag(known.diagonal()))
    go_to_diagonal(hessian, share)


def go_to_diagonal(hessian: NDArray[np.float32], share: float) -> None:
    """Go a share of the way, from 0 to 1, from a Hessian to its diagonal."""
    diagonal = hessian.diagonal().copy()
    hessian *= np.float32(1 - share)
    np.fill_diagonal(hessian, diagonal)
