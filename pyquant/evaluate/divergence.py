"""Statistics of scored tokens, by the definitions of llama-perplexity (tools/perplexity)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

KLD_PERCENTILES = (0.1, 1, 5, 10, 50, 90, 95, 99, 99.9)
CHANGE_PERCENTILES = (0.1, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)


@dataclass(frozen=True)
class Scores:
    """What a model said of n tokens.

    nll: (n,) float64, negative log-likelihoods of the tokens that came, in nats. kld: (n,) float64,
    Kullback-Leibler divergence of the model from the base, sum of p_base log(p_base / p), in nats.
    same_top: (n,) bool, whether both find the same token most likely.
    """

    nll: NDArray[np.float64]
    kld: NDArray[np.float64]
    same_top: NDArray[np.bool_]

    @classmethod
    def empty(cls, n: int) -> Scores:
        return cls(np.zeros(n), np.zeros(n), np.zeros(n, bool))

    def first(self, n: int) -> Scores:
        """Of the first n tokens."""
        return Scores(self.nll[:n], self.kld[:n], self.same_top[:n])

    def perplexity(self) -> tuple[float, float]:
        """exp of the mean negative log-likelihood, and its standard error."""
        mean, error = mean_and_error(self.nll)
        return math.exp(mean), math.exp(mean) * error


def mean_and_error(values: NDArray[np.float64]) -> tuple[float, float]:
    """The mean, and the standard error of it."""
    n = len(values)
    return float(values.mean()), math.sqrt(values.var() / (n - 1)) if n > 1 else 0.0


def divergence(base: Scores, model: Scores) -> dict[str, Any]:
    """All that `llama-perplexity --kl-divergence` reports of a model, in JSON's types."""
    n = len(base.nll)
    log_ppl, log_ppl_error = mean_and_error(model.nll)
    log_base, log_base_error = mean_and_error(base.nll)
    covariance = float(np.mean(model.nll * base.nll) - model.nll.mean() * base.nll.mean()) / max(n - 1, 1)
    ppl, ppl_base = math.exp(log_ppl), math.exp(log_base)
    log_ratio = log_ppl - log_base
    log_ratio_error = math.sqrt(max(0.0, log_ppl_error**2 + log_base_error**2 - 2 * covariance))
    ratio = math.exp(log_ratio)
    variance = (ppl * log_ppl_error) ** 2 + (ppl_base * log_base_error) ** 2 - 2 * ppl * ppl_base * covariance
    both = log_ppl_error * log_base_error
    change = np.exp(-model.nll) - np.exp(-base.nll)
    change_mean, change_error = mean_and_error(change)
    square, square_error = mean_and_error(np.square(change))
    rms = math.sqrt(square)
    kld_mean, kld_error = mean_and_error(model.kld)
    same = float(model.same_top.mean())
    return {
        "perplexity": ppl,
        "perplexity_error": ppl * log_ppl_error,
        "log_ratio": log_ratio,
        "log_ratio_error": log_ratio_error,
        "ratio": ratio,
        "ratio_error": ratio * log_ratio_error,
        "difference": ppl - ppl_base,
        "difference_error": math.sqrt(max(0.0, variance)),
        "correlation": covariance / both if both > 0 else None,
        "kld": {
            "mean": kld_mean,
            "error": kld_error,
            "min": float(model.kld.min()),
            "max": float(model.kld.max()),
            "percentiles": _percentiles(model.kld, KLD_PERCENTILES),
        },
        "probability_change": {
            "mean": change_mean,
            "error": change_error,
            "rms": rms,
            "rms_error": 0.5 / rms * square_error if rms > 0 else 0.0,
            "min": float(change.min()),
            "max": float(change.max()),
            "percentiles": _percentiles(change, CHANGE_PERCENTILES),
        },
        "same_top": {"share": same, "error": math.sqrt(same * (1 - same) / max(n - 1, 1))},
    }


def _percentiles(values: NDArray[np.float64], at: tuple[float, ...]) -> dict[str, float]:
    return {f"{p:g}": float(value) for p, value in zip(at, np.percentile(values, at))}
