"""Three tiers of tests: those without a mark, those of .ci/run (marks ci and oracle), all (slow and gpu)."""

from __future__ import annotations

import os
import time

import pytest

# What each tier leaves out.
TIERS = {"test": {"ci", "gpu", "oracle", "slow"}, "ci": {"gpu", "slow"}, "all": set[str]()}
MOST_SECONDS = float(os.environ.get("PYQUANT_TEST_SECONDS", 5))  # of a test without a mark
MARKED = {"ci", "gpu", "oracle", "slow"}
_BEGIN = pytest.StashKey[tuple[float, float]]()


def left_out(item: pytest.Item, tier: str) -> bool:
    """Say whether a tier leaves a test out."""
    return any(mark.name in TIERS[tier] for mark in item.iter_markers())


def begin(item: pytest.Item) -> None:
    """Note the time at which a test begins."""
    item.stash[_BEGIN] = _times()


def too_long(item: pytest.Item) -> str | None:
    """Say what to do about a test that has no mark and took too long; None: it did not.

    Counted is what the test computed, where that is less than what the clock says: the machine may be busy.
    """
    if any(mark.name in MARKED for mark in item.iter_markers()):
        return None
    seconds = min(now - then for now, then in zip(_times(), item.stash[_BEGIN]))
    if seconds <= MOST_SECONDS:
        return None
    return f"took {seconds:.1f} s; tests that take more than {MOST_SECONDS:.0f} s are marked ci or slow"


def _times() -> tuple[float, float]:
    used = os.times()
    return time.monotonic(), used.user + used.system + used.children_user + used.children_system
