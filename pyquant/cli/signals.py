"""Ctrl-C and SIGTERM: outputs that are half-written are removed, and what stays is named."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from pyquant.cli.output import remark

_terminated = False


def prepare() -> None:
    """Lets SIGTERM end a command as Ctrl-C does, so that all that hears the one hears the other."""
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: FrameType | None) -> None:
    global _terminated
    _terminated = True
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as of what a shell runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)


def stopped(status: int) -> NoReturn:
    """Says what is left of a command that was stopped, and ends the process: with `status`, or by SIGTERM."""
    from pyquant.files.kept import kept

    how = "terminated" if _terminated else "interrupted"
    left = [f"{path} holds {what}" for path, what in kept().items()]
    if left:
        remark(f"pyquant: {how}; {', and '.join(left)}: the same command goes on from there")
    else:
        remark(f"pyquant: {how}; nothing half-written is left")
    if _terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    sys.exit(status)
