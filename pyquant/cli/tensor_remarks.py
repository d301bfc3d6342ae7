"""Show the types of tensors, and say which fell back, were rounded twice or are not rounded by GPTQ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from pyquant.cli.output import print_table, size


def print_types(tensors: list[dict[str, Any]]) -> None:
    """Print what each tensor becomes."""
    print_table(
        ["tensor", "from", "to", "size"],
        [[t["name"], t["source_type"], t["type"], size(t["n_bytes"])] for t in tensors],
    )


def tensor_remarks(tensors: list[dict[str, Any]]) -> Iterator[str]:
    """Say which tensors were rounded twice, got another type than was wanted, or were not rounded by GPTQ."""
    fallbacks: dict[tuple[str, str], list[str]] = defaultdict(list)
    reasons: dict[str, list[str]] = defaultdict(list)
    again: dict[str, list[str]] = defaultdict(list)
    for tensor in tensors:
        if tensor["requantized"]:
            again[tensor["source_type"]].append(tensor["name"])
        if tensor["fell_back_from"]:
            fallbacks[tensor["fell_back_from"], tensor["type"]].append(tensor["name"])
        if tensor["without_gptq"]:
            reasons[tensor["without_gptq"]].append(tensor["name"])
    for type_, names in again.items():
        yield f"rounded a second time, on top of the errors of {type_}: {_some(names)}"
    n_wanted = sum(bool(t["fell_back_from"]) or t["type"] != t["source_type"] for t in tensors)
    for (wanted, type_), names in fallbacks.items():
        why = f"blocks of {wanted} do not divide their rows"
        yield f"{len(names)} of {n_wanted} tensors are of type {type_}, as {why}: {_some(names)}"
    for reason, names in reasons.items():
        yield f"not rounded by GPTQ, as {reason}: {_some(names)}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 2} more tensors" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more
