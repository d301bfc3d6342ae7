"""The lists of docs/families.md: what becomes of each architecture, and families that are tested closely.

    python -m tests.support.families_page

puts them into the page. A test compares the page with them.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator

from tests.support import ROOT
from tests.support.architectures import architecture_of
from tests.support.families import FAMILIES
from tests.support.other_models import OTHERS
from tests.support.outcomes import KEPT, Outcome

PAGE = ROOT / "docs/families.md"
OF_FEW = "output-side Hessian"  # the page says once of which architectures it is
OUTCOMES = re.compile(r"(?<=<!-- outcomes -->\n).*?(?=\n<!-- end -->)", re.DOTALL)
NAMES = re.compile(r"(?<=<!-- families -->\n).*?(?=\n<!-- end -->)", re.DOTALL)


def page() -> str:
    """The page with the lists as they are now."""
    text = OUTCOMES.sub(lambda _: "\n".join(outcomes()), PAGE.read_text())
    return NAMES.sub(lambda _: ", ".join(FAMILIES), text)


def outcomes() -> Iterator[str]:
    """Architectures by what becomes of their small models, a line for each outcome."""
    kept: dict[str, Outcome] = json.loads(KEPT.read_text())
    groups: dict[str, list[str]] = defaultdict(list)
    for name, outcome in kept.items():
        groups[in_words(outcome)].append(name)
    for words, names in sorted(groups.items(), key=lambda group: -len(group[1])):
        yield f"- **{words}**: {', '.join(architectures(names, [*kept]))}"


def in_words(outcome: Outcome) -> str:
    """Say what becomes of a model."""
    best = outcome["best"]
    if isinstance(best, dict) and best["method"] == "rtn":
        return "Rounded to nearest, and not run: " + re.sub(
            r"^\S+ is an? ([^,]*),.*", r"\1", outcome["calibrate"]
        )
    without: dict[str, list[str]] = defaultdict(list)  # by reason, what there is not
    for name, why in outcome.items():
        if isinstance(why, str):
            without[why].append(f"`{name}`")
    if isinstance(best, dict):
        for stage, why in best["left out"].items():
            if stage != OF_FEW:
                without[why].append(f"`best` with {stage}")
    return "; ".join(f"Not {', '.join(what)}: {why}" for why, what in without.items()) or "Everything"


def architectures(names: list[str], of: list[str]) -> Iterator[str]:
    """Name architectures; with its kind where the other kind of it is not among them."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for name in of:
        kinds[name if name in OTHERS else architecture_of(name)].append(name)
    for architecture, its in kinds.items():
        among = [name for name in its if name in names]
        yield from [architecture] if among == its else among


if __name__ == "__main__":
    PAGE.write_text(page())
