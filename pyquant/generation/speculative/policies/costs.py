"""Seconds that a token of a draft takes, and passes of the target over several tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyquant.errors import ConfigError
from pyquant.files.json import read_output

SCHEMA = "pyquant.draft.costs/2"
REMEDY = "`pyquant draft costs` measures them"


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
    single : float or None
        Seconds of a pass over one token behind another such pass, as where nothing is drafted: what the
        CPU's caches hold is not the draft's then. None: as behind a draft, verify[0].
    next : float or None
        Seconds of a draft token behind another one. None: as of the first.
    prompt : float
        Seconds of each token of a prompt that a draft reads. 0 where that was not measured.
    """

    draft: float
    verify: tuple[float, ...]
    models: tuple[str, str] | None = None
    path: Path | None = field(default=None, compare=False)  # the file that they were read from
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

    def of_round(self, n_calls: int, n_drafted: int | None = None) -> float:
        """Return the seconds of a round that drafts n_calls tokens, and verifies n_drafted; None: all."""
        if not n_calls:
            return self.alone
        drafting = self.draft + (n_calls - 1) * self.draft_next
        return drafting + self.of_pass((n_calls if n_drafted is None else n_drafted) + 1)

    def check_models(self, target: str, draft: str) -> None:
        """Raise ConfigError if they are not of these models, which differs. target, draft: as `models`."""
        where = self.path or "costs"
        if self.models is None:
            raise ConfigError(f"{where}: costs do not say of which models they are: {REMEDY}")
        for name, measured, wanted in zip(("target", "draft"), self.models, (target, draft)):
            if measured != wanted:
                what = f"another {name} ({_short(measured)}) than these files ({_short(wanted)})"
                raise ConfigError(f"{where}: costs of {what}: {REMEDY}")


def _short(sha256: str) -> str:
    return sha256 if len(sha256) < 16 else f"SHA-256 {sha256[:12]}..."


def read_costs(path: Path) -> Costs:
    """Read what `pyquant draft costs -o` wrote. Raises ConfigError where it cannot be read."""
    content = read_output(path, "pyquant draft costs", SCHEMA)
    try:
        costs = costs_from(content, path)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ConfigError(f"{path}: a time is missing, or is no number; measure them again") from None
    times = (costs.draft, costs.draft_next, costs.alone, *costs.verify) if costs.verify else (0.0,)
    if not all(0 < time < math.inf for time in times) or not 0 <= costs.prompt < math.inf:
        raise ConfigError(f"{path}: times have to be numbers above 0; measure them again")
    return costs


def costs_from(content: dict[str, Any], path: Path | None = None) -> Costs:
    """Return the costs in what `pyquant draft costs --json` prints: its keys `draft`, `alone`, `verify`.

    Raises AttributeError, KeyError, TypeError or ValueError where a time is missing, or is no number.
    """
    draft = content["draft"]
    entries = [content.get(name) for name in ("target", "draft")]
    names = [entry.get("sha256") or entry.get("model") for entry in entries if isinstance(entry, dict)]
    models = tuple(name for name in names if isinstance(name, str))
    return Costs(
        float(draft["seconds"]),
        tuple(float(row["seconds"]) for row in content["verify"]),
        (models[0], models[1]) if len(models) == 2 else None,
        path,
        single=float(content["alone"]["seconds"]) if "alone" in content else None,
        next=float(draft["next"]["seconds"]) if "next" in draft else None,
        prompt=float(draft["prompt"]["seconds"]) if "prompt" in draft else 0.0,
    )
