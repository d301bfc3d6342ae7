"""Measure what drafting and verifying take, in turns, so that drift of the machine meets all alike.

Draft tokens come after a pass of the target, as in drafting: what either model leaves in the CPU's
caches is not the other's. So the first of them takes longer than the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from pyquant import limits
from pyquant.errors import ConfigError
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.decoding.draft import Draft
from pyquant.generation.speculative.decoding.pair import NGRAM, check_both, draft_ctx, open_draft
from pyquant.generation.speculative.policies.costs import SCHEMA
from pyquant.llama.model import Model
from pyquant.machine.cpu import n_threads
from pyquant.models.model_file import AnyModel, open_model

LARGEST = 32  # tokens of the largest pass
IN_A_ROW = 4  # passes over one token of a turn
GREEDY = Sampling(temperature=0)

# (turns done, all of them)
Progress = Callable[[int, int], None]


def measure_costs(
    target: AnyModel,
    draft: AnyModel,
    *,
    depth: int = limits.MEASURED_BEHIND,
    rounds: int = 5,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure a pair: a draft token, and passes of the target over 1 to 32 tokens. Both files are hashed.

    Parameters
    ----------
    target, draft
        Models with one vocabulary; the draft may be "ngram".
    depth
        Tokens that both models have read before: the more there are, the longer attention takes.
    rounds
        Measurements of each; a first one is not counted.
    threads
        None: all cores.
    progress

    Returns
    -------
    dict
        What `pyquant draft costs --json` prints, and `costs_from` takes: medians in seconds, the least and
        the most. `draft` has those of a first token behind a pass of the target, of the `next` one behind
        another, and of each token of a `prompt`; `alone` those of a pass over one token behind another.

    Raises
    ------
    ConfigError, ModelFileError, NotEnoughMemory
    """
    limits.ROUNDS.check("rounds", rounds)
    limits.DRAFT_DEPTH.check("depth", depth)
    check_both(target, draft, depth + LARGEST)
    trained = None if draft == NGRAM else draft_ctx(target, draft)
    if trained is not None and trained < depth + LARGEST:
        raise ConfigError(
            f"depth: {draft} was trained with {trained} tokens, and drafts nothing behind them; give at most "
            f"{max(0, trained - LARGEST)}"
        )
    turns: list[dict[str, float]] = []
    with (
        Model(target) as model,
        Session(model, 1, depth + LARGEST, n_views=1, threads=threads) as session,
        open_draft(draft, session, GREEDY, threads=threads) as its_draft,
    ):
        meter = _Meter(session, its_draft, depth)
        for turn in range(rounds + 1):
            turns.append(meter.turn())
            if progress:
                progress(turn + 1, rounds + 1)

    def spread(name: str) -> dict[str, float]:
        seconds = [turn[name] for turn in turns[1:]]
        return {"seconds": median(seconds), "low": min(seconds), "high": max(seconds)}

    of_draft = spread("first") | {name: spread(name) for name in ("next", "prompt")}
    return {
        "schema": SCHEMA,
        "target": _named(target),
        "n_threads": n_threads(threads),
        "depth": depth,
        "draft": _named(draft) | {"takes": its_draft.takes} | of_draft,
        "alone": spread("alone"),
        "verify": [{"tokens": n, **spread(f"pass {n}")} for n in range(1, LARGEST + 1)],
    }


def _named(model: AnyModel) -> dict[str, Any]:
    if model == NGRAM:
        return {"model": NGRAM}
    file = open_model(model)
    return {"model": str(file.path), "n_bytes": file.n_bytes, "sha256": file.sha256()}


class _Meter:
    """Measures all once in a turn, behind `depth` tokens."""

    def __init__(self, session: Session, draft: Draft, depth: int) -> None:
        self._session, self._draft, self._depth = session, draft, depth
        random = np.random.default_rng(0)
        self._tokens = random.integers(0, session.model.n_vocab, depth + LARGEST).astype(np.int32)
        self._text = self._tokens[:depth].tolist()
        session.roll_back(0, 0)
        session.extend(0, self._tokens[:depth])
        draft.begin()

    def turn(self) -> dict[str, float]:
        """Return seconds of each pass, and medians of what is measured before each, and behind all.

        The draft first reads anew all that comes before. A first draft token has one and two tokens to read
        in turns, as two are unread where all were accepted; medians of both count alike.
        """
        draft, following = self._draft, []
        first: dict[int, list[float]] = {1: [], 2: []}
        draft.keep(0)
        taken = {"prompt": self._draft_token(self._text) / len(self._text)}
        for n in range(1, LARGEST + 1):
            n_unread = 2 - n % 2
            # What a draft takes over is one token at least: a round brings one.
            draft.keep(len(self._text) - n_unread - draft.takes)
            first[n_unread].append(self._draft_token(self._text))
            following.append(self._draft_token([*self._text, int(self._tokens[0])]))
            taken[f"pass {n}"] = self._pass(n)
        _, *behind_another = [self._pass(1) for _ in range(IN_A_ROW + 1)]
        return taken | {
            "first": sum(map(median, first.values())) / 2,
            "next": median(following),
            "alone": median(behind_another),
        }

    def _draft_token(self, text: list[int]) -> float:
        begin = time.perf_counter()
        self._draft.propose(text, None, 0.5)
        return time.perf_counter() - begin

    def _pass(self, n: int) -> float:
        """Return the seconds of a pass over n tokens, with the draws behind it."""
        self._session.roll_back(0, self._depth - 1)
        begin = time.perf_counter()
        logits = self._session.follow(0, self._tokens[self._depth - 1 : self._depth - 1 + n])
        GREEDY.draw(logits, np.zeros(n))
        return time.perf_counter() - begin
