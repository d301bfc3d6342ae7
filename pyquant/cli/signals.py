"""Ctrl-C and SIGTERM: outputs that are half-written are removed, and what stays is named."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from pyquant.cli.output import remark

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_interrupted = _terminated = False


def prepare() -> None:
    """Lets SIGTERM end a command as Ctrl-C does, so that all that hears the one hears the other.

    That it came is noted: code in C makes other exceptions of KeyboardInterrupt, or drops it.
    """
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _send_again


def came() -> bool:
    """Whether Ctrl-C or SIGTERM came."""
    return _interrupted


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _interrupted
    _interrupted = True
    raise KeyboardInterrupt


def _send_again(lost: UnraisableHookArgs) -> None:
    # What a weak reference's callback or a destructor raises is dropped.
    if issubclass(lost.exc_type, KeyboardInterrupt):
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(lost)


def _terminate(number: int, frame: FrameType | None) -> None:
    global _terminated
    _terminated = True
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as of what a shell runs in the background
        signal.signal(signal.SIGINT, _interrupt)
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
    exec("")  # else Python, which a KeyboardInterrupt left while a module was loaded, ends by SIGINT
    sys.exit(status)
