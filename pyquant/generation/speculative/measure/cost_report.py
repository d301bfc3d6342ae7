"""Times that a draft token and passes of the target took, turn by turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyquant.generation.speculative.policies.costs import SCHEMA, Costs
from pyquant.generation.speculative.write.pair import NGRAM, sha256_of
from pyquant.models.model_file import open_model


@dataclass(frozen=True)
class Seconds:
    """What every turn measured.

    Attributes
    ----------
    turns : list of float
        Seconds.
    """

    turns: list[float]

    @property
    def median(self) -> float:
        """The median of all turns."""
        return statistics.median(self.turns)

    def to_json(self) -> dict[str, Any]:
        """Return them as `pyquant draft costs --json` prints them."""
        return {"seconds": self.median, "low": min(self.turns), "high": max(self.turns)}


@dataclass(frozen=True)
class Timed:
    """What a `CostMeter` measured.

    Attributes
    ----------
    draft_token : Seconds
        A draft token behind a pass of the target.
    draft_next : Seconds
        A draft token behind another one.
    draft_of_two : Seconds
        A draft token behind a pass, where the draft has two tokens to read.
    draft_prompt : Seconds
        Each token of a prompt that the draft reads.
    certainty : Seconds
        The part of a draft token that only policies need: entropy and probabilities.
    verify : list of Seconds
        The target's pass over 1, 2, ... tokens, with the draws after each.
    alone : Seconds
        Its pass over one token behind another such pass.
    """

    draft_token: Seconds
    draft_next: Seconds
    draft_of_two: Seconds
    draft_prompt: Seconds
    certainty: Seconds
    verify: list[Seconds]
    alone: Seconds

    @classmethod
    def pooled(cls, parts: Sequence[Timed]) -> Timed:
        """Put the turns of several measurements of one pair together."""
        names = ("draft_token", "draft_next", "draft_of_two", "draft_prompt", "certainty", "alone")
        each = {name: _pooled([getattr(part, name) for part in parts]) for name in names}
        return cls(**each, verify=[_pooled(seconds) for seconds in zip(*(part.verify for part in parts))])

    def costs(
        self,
        models: tuple[str, str] | None = None,
        of_turns: Callable[[list[float]], float] = statistics.median,
    ) -> Costs:
        """Return the costs that policies and replays take.

        A further token to read costs nothing where one and two are as near as chance.

        Parameters
        ----------
        models
            SHA-256 of the target and of the draft, or "ngram"; None: not known.
        of_turns
            Of all turns: their median, which a slow one does not move, or their mean, whose sums are what the
            clock says.
        """
        draft, of_two = of_turns(self.draft_token.turns), of_turns(self.draft_of_two.turns)
        verify = tuple(of_turns(seconds.turns) for seconds in self.verify)
        further, single = max(of_two - draft, 0.0), of_turns(self.alone.turns)
        following, prompt = of_turns(self.draft_next.turns), of_turns(self.draft_prompt.turns)
        return Costs(draft, verify, models, further, single=single, next=following, prompt=prompt)

    def to_json(self) -> dict[str, Any]:
        """Return keys `draft`, `alone` and `verify` of what `pyquant draft costs --json` prints."""
        return {
            "draft": self.draft_token.to_json()
            | {"certainty": self.certainty.to_json(), "of_two": self.draft_of_two.to_json()}
            | {"next": self.draft_next.to_json(), "prompt": self.draft_prompt.to_json()}
            | {"further": self.costs().further},
            "alone": self.alone.to_json(),
            "verify": [{"tokens": n, **seconds.to_json()} for n, seconds in enumerate(self.verify, start=1)],
        }


def _pooled(parts: Sequence[Seconds]) -> Seconds:
    return Seconds([turn for part in parts for turn in part.turns])


@dataclass(frozen=True)
class CostReport:
    """Times of a pair.

    Attributes
    ----------
    target, draft : Path or str
        Models; "ngram" for the draft that looks up.
    timed : Timed
    depth : int
        Tokens that both models had read before.
    n_threads : int
    takes : bool
        Whether the draft takes over what its target has read.
    """

    target: Path
    draft: Path | str
    timed: Timed
    depth: int
    n_threads: int
    takes: bool

    @property
    def costs(self) -> Costs:
        """Medians, as policies take them, of these very models: both files are hashed."""
        return self.timed.costs((sha256_of(self.target), sha256_of(self.draft)))

    def to_json(self) -> dict[str, Any]:
        """Return the report as `pyquant draft costs --json` prints it."""
        timed = self.timed.to_json()
        return {
            "schema": SCHEMA,
            "target": _named(self.target),
            "n_threads": self.n_threads,
            "depth": self.depth,
            **timed,
            "draft": _named(self.draft) | {"takes": self.takes} | timed["draft"],
        }


def _named(model: Path | str) -> dict[str, Any]:
    if model == NGRAM:
        return {"model": NGRAM}
    file = open_model(Path(model))
    return {
        "model": str(model),
        "n_bytes": file.n_bytes,
        "sha256": file.sha256(),
    }
