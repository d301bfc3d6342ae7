"""Seconds that a token of a draft takes, and passes of the target over several tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyquant.errors import ConfigError
from pyquant.files.json import read_output

SCHEMA = "pyquant.draft.costs/2"
MEASURE = "`pyquant draft costs` measures them"
OTHERS = "; --other-models takes these, for a prediction"


@dataclass(frozen=True)
class Costs:
    """What drafting and verifying take.

    Attributes
    ----------
    draft : float
        Seconds of a round's first draft token, behind a pass of the target.
    verify : tuple of float
        Seconds of a pass of the target over 1, 2, ... tokens.
    models : (str, str) or None
        SHA-256 of the target and of the draft that were measured, or "ngram"; None where that is not known.
    further : float
        Seconds of each token but one that a draft has to read before it drafts: it has read one less than
        it drafted, so where all were accepted there are two.
    path : Path or None
        The file that they were read from.
    single : float or None
        Seconds of a pass over one token behind another such pass, as where nothing is drafted: what the
        processor's caches hold is not the draft's then. None: as behind a draft, verify[0].
    next : float or None
        Seconds of a draft token behind another one. None: as of the first.
    prompt : float
        Seconds of each token of a prompt that a draft reads. 0 where that was not measured.
    """

    draft: float
    verify: tuple[float, ...]
    models: tuple[str, str] | None = None
    further: float = 0.0
    path: Path | None = field(default=None, compare=False)
    single: float | None = None
    next: float | None = None
    prompt: float = 0.0

    @property
    def alone(self) -> float:
        """Seconds of a token where nothing is drafted."""
        return self.verify[0] if self.single is None else self.single

    @property
    def draft_next(self) -> float:
        """Seconds of a draft token behind another one."""
        return self.draft if self.next is None else self.next

    def of_pass(self, n_tokens: int) -> float:
        """Return the seconds of a pass over n tokens; what was not measured goes on in a straight line."""
        verify = self.verify
        if n_tokens <= len(verify):
            return verify[n_tokens - 1]
        slope = (verify[-1] - verify[0]) / (len(verify) - 1) if len(verify) > 1 else verify[0]
        return verify[-1] + slope * (n_tokens - len(verify))

    def of_drafting(self, n_calls: int, begun: bool = False) -> float:
        """Return the seconds of drafting n_calls tokens; begun: others of the round came before them."""
        return n_calls * self.draft_next + (0.0 if begun or not n_calls else self.draft - self.draft_next)

    def of_round(self, n_calls: int, n_drafted: int | None = None, n_unread: int = 1) -> float:
        """Return the seconds of a round.

        Parameters
        ----------
        n_calls
            Tokens that the draft computes.
        n_drafted
            Of them, those that are verified, in a pass over one more; None: all.
        n_unread
            Tokens that the draft has to read before.
        """
        if not n_calls:
            return self.alone
        drafting = self.of_drafting(n_calls) + (n_unread - 1) * self.further
        return drafting + self.of_pass((n_calls if n_drafted is None else n_drafted) + 1)


def unread_after(n_unread: int, n_calls: int, n_accepted: int) -> int:
    """Return how many tokens a draft has to read after a round; with n_calls it was asked for a token."""
    return n_accepted + 1 - min(n_calls - 1, n_accepted) if n_calls else n_unread + 1


def check_models(costs: Costs, target: str, draft: str, of: str, remedy: str = MEASURE) -> None:
    """Refuse costs of other models than those of a record, or at hand.

    Parameters
    ----------
    costs
    target, draft
        SHA-256 of both, or "ngram".
    of
        What these are the models of, for the message.
    remedy
        What to do, for the message.

    Raises
    ------
    ConfigError
        The message says which of both differs.
    """
    where = costs.path or "costs"
    if costs.models is None:
        raise ConfigError(
            f"{where}: costs do not say of which models they are, to use them for {of}: {remedy}"
        )
    pairs = zip(("target", "draft"), costs.models, (target, draft))
    for name, measured, wanted in pairs:
        if measured != wanted:
            what = f"another {name} ({_short(measured)}) than {of} ({_short(wanted)})"
            raise ConfigError(f"{where}: costs of {what}: {remedy}")


def _short(sha256: str) -> str:
    return sha256 if len(sha256) < 16 else f"SHA-256 {sha256[:12]}..."


def read_costs(path: Path) -> Costs:
    """Read what `pyquant draft costs -o` wrote.

    Raises
    ------
    ConfigError
        It cannot be read, or is something else.
    """
    content = read_output(path, "pyquant draft costs", SCHEMA)
    try:
        costs = costs_from(content, path)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ConfigError(f"{path}: a time is missing, or is no number; measure them again") from None
    times = (costs.draft, *costs.verify, *(time for time in (costs.single, costs.next) if time is not None))
    if not costs.verify or not all(math.isfinite(time) and time > 0 for time in times):
        raise ConfigError(f"{path}: times have to be numbers above 0; measure them again")
    for name, seconds in (("further token", costs.further), ("prompt's token", costs.prompt)):
        if not 0 <= seconds < math.inf:
            raise ConfigError(f"{path}: a {name} takes {seconds} s; measure it again")
    return costs


def costs_from(content: dict[str, Any], path: Path | None = None) -> Costs:
    """Return the costs in what `pyquant draft costs --json` prints.

    Parameters
    ----------
    content
        It, or its keys `draft`, `alone` and `verify`.
    path
        The file that it was read from.

    Raises
    ------
    AttributeError, KeyError, TypeError, ValueError
        A time is missing, or is no number.
    """
    draft = content["draft"]
    following = draft.get("next")
    return Costs(
        float(draft["seconds"]),
        tuple(float(row["seconds"]) for row in content["verify"]),
        _models(content),
        float(draft.get("further", 0.0)),
        path,
        single=float(content["alone"]["seconds"]) if "alone" in content else None,
        next=None if following is None else float(following["seconds"]),
        prompt=float(draft["prompt"]["seconds"]) if "prompt" in draft else 0.0,
    )


def _models(content: dict[str, Any]) -> tuple[str, str] | None:
    entries = [content.get(name) for name in ("target", "draft")]
    names = [entry.get("sha256") or entry.get("model") for entry in entries if isinstance(entry, dict)]
    target, draft = names if len(names) == 2 else (None, None)
    return (target, draft) if isinstance(target, str) and isinstance(draft, str) else None
