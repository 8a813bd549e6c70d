"""A lock that serves waiters in their order."""

from __future__ import annotations

import threading
import time

from retriever.turns import Turns


def test_one_at_a_time_in_the_order_of_arrival() -> None:
    turns, served, inside = Turns(), [], []
    ready = threading.Event()

    def work(number: int) -> None:
        with turns:
            inside.append(number)
            assert len(inside) == 1
            served.append(number)
            inside.remove(number)

    threads = []
    with turns:
        for number in range(8):
            threads.append(threading.Thread(target=work, args=(number,)))
            threads[-1].start()
            while len(turns._waiting) <= number:
                time.sleep(0.001)
        ready.set()
    for thread in threads:
        thread.join(10)
    assert served == list(range(8))
    with turns:  # free again
        pass


def test_a_long_work_in_steps_lets_others_in_between() -> None:
    turns, stop, steps = Turns(), threading.Event(), []

    def encode() -> None:
        while not stop.is_set():
            with turns:
                steps.append(1)
                time.sleep(0.005)

    thread = threading.Thread(target=encode)
    thread.start()
    while not steps:
        time.sleep(0.001)
    waited = []
    for _ in range(20):
        before = len(steps)
        with turns:
            waited.append(len(steps) - before)
    stop.set()
    thread.join(10)
    assert max(waited) <= 2  # the step that was going on, and at most one that came before


def test_an_error_inside_hands_on() -> None:
    turns = Turns()
    for _ in range(2):
        try:
            with turns:
                raise ValueError
        except ValueError:
            pass
