"""Costs of drafting that nobody measured."""

from __future__ import annotations

import json
from pathlib import Path

from pyquant.files.sha256 import files_sha256
from pyquant.generation.speculative.policies.costs import SCHEMA


def write_costs(path: Path, models: tuple[Path, Path], draft: float = 0.004, verify: float = 0.001) -> None:
    """Write seconds of a draft token, and of each token of a pass behind the first, which takes 10 ms."""
    passes = [{"seconds": 0.010 + verify * n} for n in range(32)]
    target, its_draft = ({"sha256": files_sha256([model])} for model in models)
    content = {"schema": SCHEMA, "target": target, "draft": {"seconds": draft} | its_draft, "verify": passes}
    path.write_text(json.dumps(content))
