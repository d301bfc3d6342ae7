"""Ctrl-C while llama.cpp computes: Python's handler would run only afterwards, or its exception get lost."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

from pyquant import _core


class Interrupt(_core.Interrupt):
    """Memory of whether Ctrl-C has come, which llama.cpp asks when it offers to stop.

    heard: whether it has come since `held` was entered.
    callback, address: a function for llama.cpp to ask, and its argument. Nothing of Python runs in it.
    """

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
        self.begin(number)
        try:
            yield
        finally:
            if self.end():
                signal.raise_signal(number)
