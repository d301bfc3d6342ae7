"""Do work beside other work, in a thread that waits for it.

An executor takes some 70 µs to hand over and to ask, where a mask takes 20; a queue takes a third of it.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

Given = TypeVar("Given")


class SideThread(Generic[Given]):
    """A thread that calls `work` again and again, each time with what `begin` was called with."""

    def __init__(self, work: Callable[[Given], None]) -> None:
        self._given: SimpleQueue[tuple[Given] | None] = SimpleQueue()
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        # A daemon: a process that is ended does not wait for it.
        self._thread = Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()
        self._begun = False

    def _run(self, work: Callable[[Given], None]) -> None:
        while (given := self._given.get()) is not None:
            try:
                work(*given)
            except BaseException as error:
                self._done.put(error)
            else:
                self._done.put(None)

    def begin(self, given: Given) -> None:
        """Begin to work; what was begun before is waited for, and its error forgotten."""
        if self._begun:
            self._done.get()
        self._begun = True
        self._given.put((given,))

    def finish(self) -> None:
        """Wait until the work is done that was begun, if any was. Raises what it raised."""
        if self._begun:
            self._begun = False
            if (error := self._done.get()) is not None:
                raise error

    def close(self) -> None:
        """Let the thread end, and wait for it."""
        self._given.put(None)
        self._thread.join()
