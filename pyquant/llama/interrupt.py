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
        """Note Ctrl-C without stopping while within, and let it through when leaving."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        # None: not Python's. A shell ignores Ctrl-C for what it runs in the background, and so does this.
        if not in_main_thread or signal.getsignal(signal.SIGINT) in (None, signal.SIG_IGN):
            yield
            return

        def note(_signal: int, _frame: object) -> None:
            self.heard = True

        before = signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            if self.heard:
                self.heard = False
                signal.raise_signal(signal.SIGINT)
