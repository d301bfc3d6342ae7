"""A mix of types, as `pyquant mix` and `pyquant quantize` print it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pyquant.cli.output import print_table, size

SPEEDS = {"prompts": "prompt", "tokens": "generation"}


def print_types_of(mix: dict[str, Any]) -> None:
    """Print how many tensors have which type."""
    from pyquant.llama.interleaved import interleaved

    counts = Counter(of["type"] for of in mix["tensors"].values())
    shares: Counter[str] = Counter()
    for of in mix["tensors"].values():
        shares[of["type"]] += of["share"] or 0
    fast = {type_.name for type_ in interleaved()}
    print_table(
        ["type", "tensors", "of KLD", "interleaved here"],
        [
            [type_, str(n), f"{shares[type_]:.1%}", "yes" if type_ in fast else "no"]
            for type_, n in sorted(counts.items())
        ],
    )


def trials_of(mix: dict[str, Any]) -> dict[str, str]:
    """Say what files were tried, and how fast the best is."""
    lines = {trial["name"]: _trial(trial) for trial in mix["trials"]}
    if speed := mix["speed"]:
        rates = [f"{what} {_ratio(speed[test])}" for what, test in SPEEDS.items()]
        lines[f"beside {mix['stock']['name']}"] = f"{', '.join(rates)} times as fast"
    return lines


def _ratio(rates: dict[str, Any]) -> str:
    return f"{rates['ratio']:.2f} ({rates['ratio_low']:.2f}..{rates['ratio_high']:.2f})"


def _trial(trial: dict[str, Any]) -> str:
    return f"{size(trial['n_bytes'])}, KLD {trial['kld']:.5f} +/- {trial['error']:.5f}"
