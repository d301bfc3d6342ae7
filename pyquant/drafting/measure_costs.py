"""Measure what drafting and verifying take, in turns, so that drift of the machine meets all alike.

Each draft token comes after a pass of the target, as in drafting: what either model leaves in the processor's
caches is not the other's.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyquant import limits
from pyquant.drafting.costs import SCHEMA, Costs
from pyquant.drafting.draft import Draft
from pyquant.drafting.pair import NGRAM, check_both, open_draft, sha256_of
from pyquant.generate.sampling import Sampling
from pyquant.generate.session import Session
from pyquant.llama.model import Model
from pyquant.machine import n_threads
from pyquant.models.model_file import open_model

LARGEST = 32  # tokens of the largest pass

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Seconds:
    """What every round measured.

    Attributes
    ----------
    rounds : list of float
        Seconds.
    """

    rounds: list[float]

    @property
    def median(self) -> float:
        """The median of all rounds."""
        return statistics.median(self.rounds)

    def to_json(self) -> dict[str, Any]:
        """Return them as `pyquant draft costs --json` prints them."""
        return {"seconds": self.median, "low": min(self.rounds), "high": max(self.rounds)}


@dataclass(frozen=True)
class CostReport:
    """Times of a pair.

    Attributes
    ----------
    target, draft : Path or str
        Models; "ngram" for the draft that looks up.
    draft_token : Seconds
        Of a draft token.
    draft_of_two : Seconds
        Of a draft token where the draft has two tokens to read.
    certainty : Seconds
        Of the part of it that only policies need: entropy and probabilities.
    verify : list of Seconds
        Of the target's pass over 1, 2, ... tokens, with the draws after each.
    depth : int
        Tokens that both models had read before.
    n_threads : int
    """

    target: Path
    draft: Path | str
    draft_token: Seconds
    draft_of_two: Seconds
    certainty: Seconds
    verify: list[Seconds]
    depth: int
    n_threads: int

    @property
    def costs(self) -> Costs:
        """Medians, as policies take them, of these very models: both files are hashed."""
        verify = tuple(seconds.median for seconds in self.verify)
        models = sha256_of(self.target), sha256_of(self.draft)
        return Costs(self.draft_token.median, verify, models, self.further)

    @property
    def further(self) -> float:
        """Seconds of a further token to read; none where both medians are as near as chance."""
        return max(self.draft_of_two.median - self.draft_token.median, 0.0)

    def to_json(self) -> dict[str, Any]:
        """Return the report as `pyquant draft costs --json` prints it."""
        return {
            "schema": SCHEMA,
            "target": _named(self.target),
            "draft": _named(self.draft)
            | self.draft_token.to_json()
            | {"certainty": self.certainty.to_json(), "of_two": self.draft_of_two.to_json()}
            | {"further": self.further},
            "n_threads": self.n_threads,
            "depth": self.depth,
            "verify": [{"tokens": n, **seconds.to_json()} for n, seconds in enumerate(self.verify, start=1)],
        }


def measure_costs(
    target: Path,
    draft: Path | str,
    *,
    depth: int = limits.MEASURED_BEHIND,
    rounds: int = 5,
    threads: int | None = None,
    progress: Progress | None = None,
) -> CostReport:
    """Measure a pair: a draft token, and passes of the target over 1 to 32 tokens.

    Every round measures each pass once, and before each a draft token, for which the draft has one and two
    tokens to read in turns; their medians are the round's. A first round is not counted.

    Parameters
    ----------
    target
    draft
        A model with the target's vocabulary, or "ngram".
    depth
        Tokens that both models have read before: the more there are, the longer attention takes.
    rounds
        Measurements of each.
    threads
        None: all processors.
    progress
        Called with measurements done and all of them.

    Raises
    ------
    ConfigError, ModelFileError, NotEnoughMemory
    """
    limits.ROUNDS.check("rounds", rounds)
    limits.DRAFT_DEPTH.check("depth", depth)
    n_ctx = depth + LARGEST
    check_both(target, draft, n_ctx)
    sampling = Sampling(temperature=0)
    with (
        Model(target) as model,
        Session(model, 1, n_ctx, threads=threads) as session,
        open_draft(draft, target, sampling, n_ctx, threads=threads) as its_draft,
    ):
        tokens = np.random.default_rng(0).integers(0, model.n_vocab, n_ctx).astype(np.int32)
        text = tokens[:depth].tolist()
        session.extend(0, tokens[:depth])
        its_draft.propose(text[:-1], None, 0.5)
        drafts: dict[int, list[float]] = {1: [], 2: []}  # by tokens to read
        sure: list[float] = []
        passes: list[list[float]] = [[] for _ in range(LARGEST)]
        for turn in range(rounds + 1):
            of_turn: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
            for n in range(1, LARGEST + 1):
                n_unread = 2 - n % 2
                of_turn[n_unread].append(_draft_token(its_draft, text, n_unread))
                seconds = _pass(session, sampling, depth, tokens[depth - 1 : depth - 1 + n])
                if turn > 0:
                    passes[n - 1].append(seconds)
                if progress:
                    progress(turn * LARGEST + n, (rounds + 1) * LARGEST)
            if turn > 0:
                for n_unread, measured in of_turn.items():
                    drafts[n_unread].append(statistics.median(seconds for seconds, _ in measured))
                sure.append(statistics.median(seconds for _, seconds in of_turn[1]))
    verify = [Seconds(seconds) for seconds in passes]
    return CostReport(
        target,
        draft,
        Seconds(drafts[1]),
        Seconds(drafts[2]),
        Seconds(sure),
        verify,
        depth,
        n_threads(threads),
    )


def _draft_token(draft: Draft, text: list[int], n_unread: int) -> tuple[float, float]:
    """Return the seconds of a draft token, and those of knowing how sure it is."""
    draft.keep(len(text) - n_unread)
    before, begin = draft.sure_seconds, time.perf_counter()
    draft.propose(text, None, 0.5)
    return time.perf_counter() - begin, draft.sure_seconds - before


def _pass(session: Session, sampling: Sampling, depth: int, tokens: np.ndarray) -> float:
    session.roll_back(0, depth - 1)
    begin = time.perf_counter()
    logits = session.follow(0, tokens)
    sampling.draw(logits, np.zeros(len(tokens)))
    return time.perf_counter() - begin


def _named(model: Path | str) -> dict[str, Any]:
    if model == NGRAM:
        return {"model": NGRAM}
    file = open_model(Path(model))
    return {
        "model": str(model),
        "n_bytes": file.n_bytes,
        "sha256": file.sha256(),
    }
