"""Costs of drafting that nobody measured."""

from __future__ import annotations

import json
from pathlib import Path

from pyquant.drafting.costs import SCHEMA


def write_costs(path: Path, draft: float = 0.004, verify: float = 0.001) -> None:
    """Write seconds of a draft token, and of each token of a pass behind the first, which takes 10 ms."""
    passes = [{"seconds": 0.010 + verify * n} for n in range(32)]
    path.write_text(json.dumps({"schema": SCHEMA, "draft": {"seconds": draft}, "verify": passes}))
