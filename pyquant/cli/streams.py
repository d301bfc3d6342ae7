"""Standard streams as a process may find them: closed, full, unread, or of another encoding."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from typing import TextIO

from pyquant.errors import OutputError


def prepare() -> None:
    """Makes the streams safe to write to. Raises OutputError if standard output is closed.

    What an encoding lacks is printed as an escape, such as `\\u0394`. Remarks to a closed standard
    error go nowhere.
    """
    atexit.register(_forget_remarks)
    lacks_output, lacks_errors = sys.stdout is None, sys.stderr is None
    # Numbers 0 to 2 are taken, so that no file that is opened later gets one of them.
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    if lacks_errors:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (open until the end)
    if lacks_output:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        raise OutputError("standard output is closed; `>/dev/null` is where unwanted results go")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _forget_remarks() -> None:
    """Lets go of remarks that could not be written: Python would write them at its end, and exit with 120."""
    try:
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


def hear_loggers() -> None:
    """Lets warnings of rooms come among our remarks; those of llama.cpp as lines that say whose they are."""
    import logging

    from pyquant.wings import WINGS

    class Remarks(logging.Handler):
        def __init__(self, whose: str) -> None:
            super().__init__(logging.WARNING)
            self._whose = whose

        def emit(self, record: logging.LogRecord) -> None:
            with contextlib.suppress(OSError):
                print(f"{self._whose}{record.getMessage()}", file=sys.stderr)

    ours = ("pyquant.llama.context", *WINGS)
    for name, whose in [("pyquant.llama", "llama.cpp: "), *((name, "") for name in ours)]:
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(Remarks(whose))
            logger.propagate = False


def silence() -> None:
    """Lets go of what standard output still holds: its reader has gone, or it is full."""
    _discard(sys.stdout)


def _discard(stream: TextIO) -> None:
    """Lets whatever a stream still holds, and gets from now on, go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
