"""Findings in words: the best quantizers at each size, what cannot be told apart, what does not work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from pyquant.evaluate.kld import BROKEN, ERRORS
from pyquant.evaluate.paired import mean_of_chunks
from pyquant.study.items import Items
from pyquant.study.results.columns import plus_minus
from pyquant.study.results.read import Measurement, ModelResults, Result

CLASS = 0.5  # bits per weight between two sizes that are spoken of


@dataclass(frozen=True)
class Candidate:
    """A quantizer whose size and KLD are known."""

    label: str
    bits: float  # per weight, of the whole file
    kld: float  # mean KLD on a text and its standard error, in nats
    error: float
    measured: Measurement  # the measurement, which may have the KLD of every token

    @property
    def size_class(self) -> float:
        """The least multiple of CLASS that its bits do not exceed."""
        return math.ceil(self.bits / CLASS) * CLASS

    @cached_property
    def items(self) -> Items | None:
        """Results of every token, or None where they were not kept."""
        return self.measured.items()

    def error_of_difference(self, peer: Candidate) -> float:
        """Return the standard error of the difference of both KLDs, in nats.

        Both are measured on the same tokens. Where the values of every token are kept, the error is that
        of paired differences. Else it is as if both were independent, which is too large.
        """
        if self.items is None or peer.items is None:
            return math.hypot(self.error, peer.error)
        return mean_of_chunks(self.items["kld"].astype(float) - peer.items["kld"], self.items["chunk"])[1]

    def is_alike(self, peer: Candidate) -> bool:
        """Return whether the difference of both KLDs is within noise."""
        return abs(self.kld - peer.kld) <= ERRORS * self.error_of_difference(peer)


def candidates(model: ModelResults, text: int) -> list[Candidate]:
    """List the quantizers that work and whose size and KLD are known, in the study's order."""
    listed = []
    for row in model.rows:
        measured, size = row.measurement("quality", text), row.result("size")
        if row.mode and measured and size and not _is_broken(measured.result):
            kld = measured.result["kld"]
            listed.append(Candidate(row.label, size["bits"], kld["mean"], kld["error"], measured))
    return listed


def best_at_each_size(model: ModelResults, text: int) -> list[str]:
    """Say which quantizer diverges least among files of at most so many bits per weight.

    text: index of the text on which KLD was measured.
    Returns: a sentence or two for each size, in steps of CLASS bits, at which another quantizer is the best;
    one more for larger files that are no better.
    """
    every = candidates(model, text)
    if len(every) < 2:
        return []
    said: list[str] = []
    best = None
    for limit in sorted({candidate.size_class for candidate in every}):
        among = [candidate for candidate in every if candidate.size_class <= limit]
        least = min(among, key=lambda candidate: candidate.kld)
        if least is best:
            continue
        best = least
        alike = [peer.label for peer in among if peer is not least and peer.is_alike(least)]
        noise = f" Within noise of it: {', '.join(alike)}." if alike else ""
        said.append(
            f"Up to {limit:g} bits per weight, {least.label} is nearest to the model: KLD "
            f"{plus_minus(least.kld, least.error)} nats at {least.bits:.2f} bits.{noise}"
        )
    larger = [candidate.label for candidate in every if best and candidate.size_class > best.size_class]
    return said + ([f"Larger, and no nearer: {', '.join(larger)}."] if larger else [])


def not_usable(model: ModelResults, text: int) -> list[str]:
    """Name the quantizers whose perplexity is more than BROKEN times the unquantized model's."""
    broken = [
        row.label for row in model.rows if (result := row.result("quality", text)) and _is_broken(result)
    ]
    if not broken:
        return []
    return [f"Of no use, with a perplexity more than {BROKEN:g} times the model's: {', '.join(broken)}."]


def _is_broken(result: Result) -> bool:
    return result.get("ratio", 1.0) > BROKEN
