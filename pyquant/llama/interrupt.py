"""Ctrl-C while llama.cpp computes: it calls back into Python, where the exception would get lost."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class Interrupt:
    """Memory of whether Ctrl-C has come, which llama.cpp asks when it offers to stop."""

    def __init__(self) -> None:
        self.heard = False

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Note Ctrl-C without stopping while within, and let it through when leaving.

        Where it is ignored, as of what a shell runs in the background, SIGTERM is noted instead.
        """
        number = signal.SIGTERM if signal.getsignal(signal.SIGINT) == signal.SIG_IGN else signal.SIGINT
        in_main_thread = threading.current_thread() is threading.main_thread()
        if not in_main_thread or signal.getsignal(number) is None:  # None: not Python's
            yield
            return

        def note(_signal: int, _frame: object) -> None:
            self.heard = True

        before = signal.signal(number, note)
        try:
            yield
        finally:
            signal.signal(number, before)
            if self.heard:
                self.heard = False
                signal.raise_signal(number)
