"""Answers that a model gave, and what they count up to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyquant.evaluate.significance import mcnemar, wilson
from pyquant.generation.sampling.result import CONTEXT, LENGTH, Sample
from pyquant.generation.structured.cost import Cost
from pyquant.generation.structured.task import Item, Verdict
from pyquant.llama.vocabulary import Vocabulary

SCORES = ("parses", "evaluates", "right")

# Gives an answer's verdict, and why there is none: `Checker.check`.
Check = Callable[[Item, str], tuple[Verdict, str]]


@dataclass(frozen=True)
class Answer:
    """A completion that a model generated, as it was at a length.

    Attributes
    ----------
    removed
        Mean share of probability that the grammar took away from a token; None without one.
    removed_text
        One minus the probability that the model would have kept to the grammar along this completion.
    """

    item: str  # the question's name
    sample: int  # number of the completion; with the seed it decides the random numbers, for all models alike
    text: str
    cut_off: bool  # it had as many tokens as were allowed, and did not end by itself
    verdict: Verdict
    error: str  # why the check gave no verdict; "" where it did
    n_tokens: int  # with the one that ended it
    removed: float | None
    removed_text: float | None


def answer_of(
    sample: Sample, item: Item, length: int, number: int, vocabulary: Vocabulary, check: Check
) -> Answer:
    """Check what a completion was when it had at most `length` tokens."""
    whole = len(sample.tokens) <= length
    pieces = vocabulary.pieces()
    text = b"".join(pieces[token] for token in sample.tokens[:length]).decode(errors="replace")
    verdict, error = check(item, text)
    left = sample.allowed[:length]
    return Answer(
        item=item.name,
        sample=number,
        text=text,
        cut_off=not whole or sample.finish in (LENGTH, CONTEXT),
        verdict=verdict,
        error=error,
        n_tokens=min(len(sample.log_p), length),
        removed=1 - sum(left) / len(left) if left else None,
        removed_text=1 - math.prod(left) if left else None,
    )


def count(answers: Sequence[Answer], base: Sequence[Answer] | None) -> dict[str, Any]:
    """Count at least one answer up, as results name the numbers.

    base: answers of another model with the same random numbers: McNemar's exact test compares with them.
    """
    n = len(answers)
    scores = {}
    for score in SCORES:
        hits = [getattr(answer.verdict, score) for answer in answers]
        low, high = wilson(sum(hits), n)
        scores[score] = {"n": sum(hits), "share": sum(hits) / n, "low": low, "high": high}
        if base is not None:
            others = [getattr(answer.verdict, score) for answer in base]
            scores[score]["p_value"] = mcnemar(*discordant(hits, others))
    return {
        "n": n,
        "cut_off": sum(answer.cut_off for answer in answers),
        "errors": sum(bool(answer.error) for answer in answers),
        "scores": scores,
        "tokens_per_text": sum(answer.n_tokens for answer in answers) / n,
        "removed": _mean([(a.removed, a.n_tokens) for a in answers]),
        "removed_text": _mean([(a.removed_text, 1) for a in answers]),
    }


def discordant(hits: Sequence[bool], others: Sequence[bool]) -> tuple[int, int]:
    """Count what only the first and only the second has."""
    pairs = list(zip(hits, others))
    return sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)


def _mean(weighted: list[tuple[float | None, int]]) -> float | None:
    known = [(value, weight) for value, weight in weighted if value is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


@dataclass(frozen=True)
class Cell:
    """Answers of a model under a technique, at most so many tokens a completion."""

    model: str
    technique: str
    max_tokens: int
    answers: list[Answer]
    cost: Cost  # of generating all completions at the greatest length

    def n(self, score: str) -> int:
        """Return how many answers have a score: parses, evaluates or right."""
        return sum(getattr(answer.verdict, score) for answer in self.answers)

    def to_json(self, base: Cell | None) -> dict[str, Any]:
        """Return it as `pyquant structured --json` prints each of its `cells`.

        base: the first model's under the same technique and length, for McNemar's test on the same seeds.
        """
        place = {"model": self.model, "technique": self.technique, "max_tokens": self.max_tokens}
        return {**place, **count(self.answers, base.answers if base else None), **self.cost.to_json()}
