"""Work in a thread, beside what waits for a GPU meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from pyquant.rounding.spent import Spent


class Beside:
    """Does one work after the other, in a thread or at once; a context manager.

    part: what its time is counted as. in_thread: which.
    """

    def __init__(self, part: str, spent: Spent, *, in_thread: bool) -> None:
        self._part, self._spent = part, spent
        self._executor = ThreadPoolExecutor(1) if in_thread else None
        self._last: Future[None] | None = None

    def start(self, *works: Callable[[], None]) -> None:
        """Do these, when what was begun before is done; raises what ended that."""
        if self._executor:
            self.wait()
            self._last = self._executor.submit(self._do, works)
        else:
            self._do(works)

    def wait(self) -> None:
        """Wait for what was begun; raises what ended it."""
        if self._last:
            with self._spent.on(f"waiting for {self._part}"):
                self._last.result()

    def _do(self, works: Iterable[Callable[[], None]]) -> None:
        with self._spent.on(self._part):
            for work in works:
                work()

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, kind: object, *raised: object) -> None:
        if self._executor:
            self._executor.shutdown()
        if kind is None:
            self.wait()
