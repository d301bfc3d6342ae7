"""Cores that a process may use, and what the CPU can do."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pyquant import limits


def n_threads(asked: int | None) -> int:
    """The number asked for, or the cores that this process may use. Raises ConfigError."""
    if asked is not None:
        limits.THREADS.check("threads", asked)
        return asked
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_name() -> str:
    """Give the CPU's name, as the system has it."""
    for key, value in _cpuinfo():
        if key == "model name":
            return value
    return platform.processor() or platform.machine()


def cpu_flags() -> set[str]:
    """Give what the CPU can, as Linux names it, such as "avx2"; empty where the system does not say."""
    return {flag for key, value in _cpuinfo() if key in ("flags", "Features") for flag in value.split()}


def _cpuinfo() -> Iterator[tuple[str, str]]:
    """Give the keys and values that Linux has of each core."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            yield key.strip(), value.strip()
