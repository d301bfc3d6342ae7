"""Work on an array's rows, some at a time, by several threads.

numpy computes with one thread, and goes through memory anew for each operation: some rows stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pyquant.machine.cpu import n_threads


def in_blocks(n_rows: int, together: int, work: Callable[[slice], None], *, threads: int | None) -> None:
    """Call `work` with slices of so many rows, until there are none left."""
    blocks = (slice(begin, begin + together) for begin in range(0, n_rows, together))
    with ThreadPoolExecutor(n_threads(threads)) as pool:
        for _ in pool.map(work, blocks):
            pass
