"""Signals while llama.cpp computes: noted, and let through afterwards."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from pyquant.llama.interrupt import Interrupt


class Terminated(Exception):
    pass


def terminate(*_: object) -> None:
    raise Terminated


@pytest.fixture
def in_the_background() -> Iterator[None]:
    """A shell ignores Ctrl-C for what it runs in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGTERM, terminate)
    yield
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGTERM, before[1])


def hear(interrupt: Interrupt, *signals: signal.Signals) -> list[bool]:
    """Return whether each was heard while it is held; what comes afterwards goes through."""
    heard = []
    with interrupt.held():
        for number in signals:
            signal.raise_signal(number)
            heard.append(interrupt.heard)
    return heard


def test_ctrl_c_comes_afterwards() -> None:
    interrupt = Interrupt()
    with pytest.raises(KeyboardInterrupt):
        hear(interrupt, signal.SIGINT)
    assert not interrupt.heard


def test_in_the_background_ctrl_c_stays_ignored_and_sigterm_comes(in_the_background: None) -> None:
    interrupt = Interrupt()
    assert hear(interrupt, signal.SIGINT) == [False]
    with pytest.raises(Terminated):
        hear(interrupt, signal.SIGTERM)
    assert not interrupt.heard
