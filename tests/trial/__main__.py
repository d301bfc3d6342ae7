"""The trial by hand: see the package."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.trial.attacks import every_attack
from tests.trial.case import Attack
from tests.trial.runner import Result, run_trial, sum_up

COLUMNS = ("attack", "what", "cases", "held", "refused", "skipped", "failed", "seconds")


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.trial", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="shared out among attacks; default: 10000")
    parser.add_argument("--seed", type=int, default=1, help="other cases; default: 1")
    parser.add_argument("--attack", action="append", help="only this; repeatable; a beginning is enough")
    parser.add_argument("--case", type=int, help="only the case of this number, of each attack")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no further cases after these")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--sum", nargs="+", type=Path, help="run nothing: add what --json printed into files")
    arguments = parser.parse_args()
    if arguments.sum:
        result = sum_up([json.loads(path.read_text()) for path in arguments.sum])
    else:
        attacks = chosen(arguments.attack or [""])
        trial = run_trial(
            attacks, arguments.cases, arguments.seed,
            case=arguments.case, minutes=arguments.minutes, tell=tell(),
        )  # fmt: skip
        result = trial.to_json()
    print(json.dumps(result, indent=1) if arguments.json else table(result))
    sys.exit(1 if result["failures"] else 0)


def chosen(beginnings: list[str]) -> list[Attack]:
    """The attacks whose names begin so."""
    attacks = [attack for attack in every_attack() if attack.name.startswith(tuple(beginnings))]
    if not attacks:
        sys.exit(f"no such attack; there are {', '.join(attack.name for attack in every_attack())}")
    return attacks


def tell() -> Callable[[Result], None]:
    """Says on standard error how far it is, every ten seconds."""
    last = time.monotonic()

    def say(result: Result) -> None:
        nonlocal last
        if time.monotonic() - last > 10:
            last = time.monotonic()
            rate = result.n_cases / max(result.seconds, 1e-9)
            failed = f", {len(result.failures)} failed" if result.failures else ""
            print(f"{result.attack.name}: {result.n_cases:,} cases, {rate:,.0f}/s{failed}", file=sys.stderr)

    return say


def table(result: dict[str, Any]) -> str:
    """The result as a table of Markdown, and the failures below it."""
    rows = result["attacks"]
    total = {name: sum(row[name] for row in rows) for name in COLUMNS[2:]}
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in [*rows, {"attack": "all", "what": "", **total}]:
        cells = [f"{row[name]:,}" if isinstance(row[name], int) else str(row[name]) for name in COLUMNS[:-1]]
        lines.append(f"| {' | '.join(cells)} | {row['seconds']:,.0f} |")
    lines += ["", f"Seeds: {result['seed']}. Failures: {len(result['failures'])}."]
    lines += [f"FAILED {one['attack']} {one['case']}: {one['what']}" for one in result["failures"]]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
