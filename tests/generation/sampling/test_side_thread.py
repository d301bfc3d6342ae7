"""Work in a thread of its own: in order, with its errors, and to its end."""

from __future__ import annotations

import threading

import pytest

from pyquant.generation.sampling.side_thread import SideThread


def test_work_is_done_in_order_in_one_thread() -> None:
    done: list[tuple[int, int]] = []
    beside = SideThread[int](lambda number: done.append((number, threading.get_ident())))
    for number in range(100):
        beside.begin(number)
        if number % 3:
            beside.finish()
    beside.finish()
    beside.finish()  # nothing was begun
    beside.close()
    assert [number for number, _ in done] == list(range(100))
    assert {thread for _, thread in done} == {done[0][1]} != {threading.get_ident()}


def test_errors_come_where_the_work_is_waited_for() -> None:
    def work(number: int) -> None:
        if number:
            raise ValueError(number)

    beside = SideThread[int](work)
    beside.begin(1)
    with pytest.raises(ValueError, match="1"):
        beside.finish()
    beside.begin(2)  # nobody waits for it
    beside.begin(0)
    beside.finish()
    beside.close()


def test_closing_waits_for_what_was_begun() -> None:
    before = threading.active_count()
    let_go, done = threading.Event(), []
    beside = SideThread[int](lambda number: (let_go.wait(10), done.append(number)))  # type: ignore[arg-type, return-value]
    beside.begin(7)
    let_go.set()
    beside.close()
    assert done == [7]
    assert threading.active_count() == before
