"""Signals while llama.cpp computes: noted, and let through afterwards."""

from __future__ import annotations

import ctypes
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


def test_what_llama_asks_is_a_function_in_c() -> None:
    interrupt, other = Interrupt(), Interrupt()
    wants_to_stop = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(interrupt.callback)
    answers = [wants_to_stop(interrupt.address)]

    def hear_both() -> None:
        with interrupt.held():
            signal.raise_signal(signal.SIGINT)
            answers.append(wants_to_stop(interrupt.address))
            answers.append(wants_to_stop(other.address))

    with pytest.raises(KeyboardInterrupt):
        hear_both()
    assert [*answers, wants_to_stop(interrupt.address)] == [False, True, False, False]


def test_one_within_another_hears_for_itself() -> None:
    outer, inner = Interrupt(), Interrupt()
    heard = []

    def hear_within() -> None:
        with outer.held():
            with inner.held():
                signal.raise_signal(signal.SIGINT)
                heard.append((inner.heard, outer.heard))
            heard.append((inner.heard, outer.heard))  # let through to the one around it

    with pytest.raises(KeyboardInterrupt):
        hear_within()
    assert heard == [(True, False), (False, True)]


def test_no_signal_is_refused() -> None:
    with pytest.raises(ValueError, match="no signal that can be noted: 9999"):
        Interrupt().begin(9999)
