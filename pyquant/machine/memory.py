"""Memory that a process has, may take, and has to leave to libraries."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

from pyquant.errors import NotEnoughMemory
from pyquant.machine import cgroup
from pyquant.machine.cpu import n_threads

BLAS = 48 << 20  # bytes that OpenBLAS takes for a thread; where it gets none, it ends the process
STACK = 8 << 20  # bytes of a thread's stack where the system sets no limit
THREAD = 4 << 20  # bytes that a thread takes beside its stack
# How the loader, Python and C++ name a lack of memory.
NO_MEMORY = ("cannot allocate memory", "failed to map segment", "can't start new thread", "bad_alloc")


def threads_with_room(asked: int | None) -> int:
    """Give `n_threads` for work of ours, which every thread can begin.

    Raises ConfigError: no such number. NotEnoughMemory: this process may not map so many stacks. The C
    library ends a process whose thread has one, but no room for anything else.
    """
    threads = n_threads(asked)
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    require_memory(threads * (THREAD + (STACK if stack == resource.RLIM_INFINITY else stack)), "the threads")
    return threads


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
    """Give the bytes that a process can still take without swapping; None where the system does not say.

    A container's limit counts too.
    """
    known = [left] if (left := cgroup.memory_left()) is not None else []
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                known.append(1024 * int(line.split()[1]))
    return min(known, default=None)


def free_address_space() -> int | None:
    """Give the bytes that may still be mapped under `ulimit -v`; None without such a limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        return max(0, limit - pages * resource.getpagesize())
    return None


def require_memory(n_bytes: int, what: str, *, blas: int = 0) -> None:
    """Refuse work before it begins where the system would end the process in its midst.

    n_bytes: what it takes, at least.
    what: what it is for, after "for".
    blas: threads that may be in OpenBLAS at once. It takes memory for each at its first product, and keeps
        it; what it has already is required again, as it does not say.
    Raises NotEnoughMemory: this process may map less.
    """
    free = free_address_space()
    n_bytes += blas * BLAS
    if free is not None and free < n_bytes:
        raise NotEnoughMemory(
            f"not enough memory for {what}: {n_bytes / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are "
            f"left of what this process may use (`ulimit -v`)"
        )


def lacks_memory(error: Exception) -> bool:
    """Say whether an error comes of a lack of memory: several classes of errors do.

    It is known by its words. Python itself may fail without words, with a SystemError, where it gets no
    memory while it imports a module; under a limit of the address space that is taken for a lack of memory.
    """
    if isinstance(error, SystemError) and free_address_space() is not None:
        return True
    return any(reason in str(error).lower() for reason in NO_MEMORY)
