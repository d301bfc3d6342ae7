"""Ask what a process runs on: processors and memory."""

from __future__ import annotations

import os
import platform
import resource
from contextlib import suppress
from pathlib import Path

from pyquant import limits


def n_threads(asked: int | None) -> int:
    """The number asked for, or the processors that this process may use. Raises ConfigError."""
    if asked is not None:
        limits.THREADS.check("threads", asked)
        return asked
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def forget_peak() -> None:
    """Let `peak_memory` begin anew, where the system can: Linux can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """Give the most bytes that this process had in memory."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def available_memory() -> int | None:
    """Give the bytes that a process can still take without swapping; None where the system does not say."""
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return None


def cpu_name() -> str:
    """Give the processor's name, as the system has it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
