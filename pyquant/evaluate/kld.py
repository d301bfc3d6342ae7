"""Statistics of scored tokens, by the definitions of llama-perplexity (tools/perplexity)."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import ModelFileError

ERRORS = 2.0  # standard errors of a difference, below which it is noise
BROKEN = 10.0  # times the base's perplexity, above which a model is of no use
LARGEST_LOSS = 700.0  # nats; e to more than that is no double
KLD_PERCENTILES = (0.1, 1, 5, 10, 50, 90, 95, 99, 99.9)
CHANGE_PERCENTILES = (0.1, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)


@dataclass(frozen=True)
class Scores:
    """Scores of n tokens by a model.

    Attributes
    ----------
    nll : (n,) float64
        Negative log-likelihoods of the tokens that came, in nats.
    kld : (n,) float64
        Kullback-Leibler divergence of the model from the base, sum of p_base log(p_base / p), in nats.
    same_top : (n,) bool
        Whether both find the same token most likely.
    overlap : (n,) float64
        Sum of min(p_base, p): how often speculative sampling would accept a token that the model drafts.
    """

    nll: NDArray[np.float64]
    kld: NDArray[np.float64]
    same_top: NDArray[np.bool_]
    overlap: NDArray[np.float64]

    @classmethod
    def empty(cls, n: int) -> Scores:
        """Make room for n tokens, all 0."""
        return cls(np.zeros(n), np.zeros(n), np.zeros(n, bool), np.zeros(n))

    @classmethod
    def of_base(cls, n: int) -> Scores:
        """Make room for what a base says of n tokens: it does not differ from itself."""
        return cls(np.empty(n), np.zeros(n), np.ones(n, bool), np.ones(n))

    def at(self, which: NDArray[np.bool_]) -> Scores:
        """Return copies of some tokens. which: (n,)."""
        return Scores(self.nll[which], self.kld[which], self.same_top[which], self.overlap[which])

    def part(self, begin: int, end: int) -> Scores:
        """Return views of tokens begin..end-1."""
        return Scores(
            self.nll[begin:end], self.kld[begin:end], self.same_top[begin:end], self.overlap[begin:end]
        )

    def set(self, scores: Scores) -> None:
        """Take over the values of as many tokens."""
        self.nll[:], self.kld[:] = scores.nll, scores.kld
        self.same_top[:], self.overlap[:] = scores.same_top, scores.overlap

    def kld_by_chunk(self, n_per_chunk: int) -> NDArray[np.float64]:
        """Return the mean KLD per token of each chunk, (n_chunks,), in nats."""
        return self.kld.reshape(-1, n_per_chunk).mean(axis=1)

    def perplexity(self) -> tuple[float, float]:
        """Return exp of the mean negative log-likelihood, and its standard error.

        The error is that of the mean, carried through exp, as llama-perplexity has it.
        """
        mean, error = mean_and_error(self.nll)
        return math.exp(mean), math.exp(mean) * error

    def check(self, path: str | os.PathLike[str], n_per_chunk: int) -> None:
        """Refuse scores that are not finite.

        Parameters
        ----------
        path
            The model that they are of, to be named.
        n_per_chunk
            Scored tokens of a chunk, so that the chunk can be named too.

        Raises
        ------
        ModelFileError
        """
        # A token that the model rules out and the base does not makes KLD alone infinite.
        if not (finite := np.isfinite(self.nll) & np.isfinite(self.kld)).all():
            raise not_finite(path, int(np.argmin(finite)) // n_per_chunk)
        check_loss(path, float(self.nll.mean()))


@dataclass(frozen=True)
class TokenKld:
    """KLD per token, in nats.

    error: of the mean, one standard error.
    percentile_ranges: lows and highs of percentiles, one standard error of a percentile's rank away: of n
        independent tokens, (n p (1 - p))^(1/2). Few tokens are above a high percentile.
    """

    mean: float
    error: float
    min: float
    max: float
    percentiles: dict[str, float]
    percentile_ranges: dict[str, list[float]]


@dataclass(frozen=True)
class ProbabilityChange:
    """Change of the probability of the token that came, as a share, not in percent.

    Errors are one standard error. rms: root of the mean square.
    """

    mean: float
    error: float
    rms: float
    rms_error: float
    min: float
    max: float
    percentiles: dict[str, float]


@dataclass(frozen=True)
class SameTop:
    """Share of tokens where a model and its base find the same one most likely; error: one standard error."""

    share: float
    error: float


@dataclass(frozen=True)
class ExpectedAcceptance:
    """Share of tokens that speculative sampling accepts, if a model drafts for its base at temperature 1.

    error: one standard error. Greedy acceptance is `SameTop`.
    """

    share: float
    error: float


@dataclass(frozen=True)
class Kld:
    """Distance of a model from a base on a text: what `llama-perplexity --kl-divergence` reports.

    Errors are one standard error.

    Attributes
    ----------
    model : str
        Its path.
    perplexity, perplexity_error : float
    log_ratio, log_ratio_error : float
        Logarithm of the perplexity over the base's.
    ratio, ratio_error : float
        The perplexity over the base's.
    difference, difference_error : float
        The perplexity less the base's.
    correlation : float or None
        Of both models' negative log-likelihoods; None where one of them is constant.
    kld : TokenKld
    probability_change : ProbabilityChange
    same_top : SameTop
    expected_acceptance : ExpectedAcceptance
    """

    model: str
    perplexity: float
    perplexity_error: float
    log_ratio: float
    log_ratio_error: float
    ratio: float
    ratio_error: float
    difference: float
    difference_error: float
    correlation: float | None
    kld: TokenKld
    probability_change: ProbabilityChange
    same_top: SameTop
    expected_acceptance: ExpectedAcceptance

    def to_json(self) -> dict[str, Any]:
        """Return it as `pyquant compare --json` prints each of its `candidates`."""
        return asdict(self)


def not_finite(path: str | os.PathLike[str], chunk: int) -> ModelFileError:
    """Make the error that says which chunk a model gives no numbers for. path: the model's."""
    return ModelFileError(f"{path}: not finite logits in chunk {chunk}: the model is broken")


def check_loss(path: str | os.PathLike[str], mean: float) -> None:
    """Refuse a mean negative log-likelihood, in nats, whose exponential is no double.

    Raises ModelFileError: it names the model's `path`.
    """
    if mean > LARGEST_LOSS:
        raise ModelFileError(f"{path}: a perplexity of e to the {mean:.3g}: the model is broken")


def mean_and_error(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean, and the standard error of it."""
    n = len(values)
    return float(values.mean()), math.sqrt(values.var() / (n - 1)) if n > 1 else 0.0


def kld(model: str, base: Scores, scores: Scores) -> Kld:
    """Sum up what a model and its base said of the same tokens.

    base, scores: what the base said, and what the model said.
    """
    n = len(base.nll)
    log_ppl, log_ppl_error = mean_and_error(scores.nll)
    log_base, log_base_error = mean_and_error(base.nll)
    covariance = float(np.mean(scores.nll * base.nll) - scores.nll.mean() * base.nll.mean()) / max(n - 1, 1)
    ppl, ppl_base = math.exp(log_ppl), math.exp(log_base)
    log_ratio = log_ppl - log_base
    log_ratio_error = math.sqrt(max(0.0, log_ppl_error**2 + log_base_error**2 - 2 * covariance))
    ratio = math.exp(log_ratio)
    scale = max(ppl, ppl_base)  # without it the squares of a broken model's are no doubles
    own, its = ppl / scale, ppl_base / scale
    variance = (own * log_ppl_error) ** 2 + (its * log_base_error) ** 2 - 2 * own * its * covariance
    both = log_ppl_error * log_base_error
    same = float(scores.same_top.mean())
    return Kld(
        model=model,
        perplexity=ppl,
        perplexity_error=ppl * log_ppl_error,
        log_ratio=log_ratio,
        log_ratio_error=log_ratio_error,
        ratio=ratio,
        ratio_error=ratio * log_ratio_error,
        difference=ppl - ppl_base,
        difference_error=scale * math.sqrt(max(0.0, variance)),
        correlation=covariance / both if both > 0 else None,
        kld=token_kld(scores.kld),
        probability_change=_probability_change(np.exp(-scores.nll) - np.exp(-base.nll)),
        same_top=SameTop(same, math.sqrt(same * (1 - same) / max(n - 1, 1))),
        expected_acceptance=ExpectedAcceptance(*mean_and_error(scores.overlap)),
    )


def token_kld(kld: NDArray[np.float64]) -> TokenKld:
    """Sum up the KLD of n tokens. kld: (n,), in nats."""
    mean, error = mean_and_error(kld)
    percentiles = _percentiles(kld, KLD_PERCENTILES)
    shares = np.array(KLD_PERCENTILES) / 100
    apart = np.sqrt(shares * (1 - shares) / len(kld))
    ends = np.quantile(kld, np.clip([shares - apart, shares + apart], 0, 1))
    ranges = dict(zip(percentiles, ends.T.tolist()))
    return TokenKld(mean, error, float(kld.min()), float(kld.max()), percentiles, ranges)


def _probability_change(change: NDArray[np.float64]) -> ProbabilityChange:
    mean, error = mean_and_error(change)
    square, square_error = mean_and_error(np.square(change))
    rms = math.sqrt(square)
    return ProbabilityChange(
        mean=mean,
        error=error,
        rms=rms,
        rms_error=0.5 / rms * square_error if rms > 0 else 0.0,
        min=float(change.min()),
        max=float(change.max()),
        percentiles=_percentiles(change, CHANGE_PERCENTILES),
    )


def _percentiles(values: NDArray[np.float64], at: tuple[float, ...]) -> dict[str, float]:
    return {f"{p:g}": float(value) for p, value in zip(at, np.percentile(values, at))}
