import signal
import threading

import pytest

from chairlift.live.processes.interrupts import deferred_interrupts


def interrupted(times: int, reached: list[str]) -> None:
    with deferred_interrupts():
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        reached.append("the end")


def test_an_interrupt_is_raised_at_the_end() -> None:
    reached: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(1, reached)
    assert reached == ["the end"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_one_does_not_wait() -> None:
    reached: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(2, reached)
    assert reached == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_program_s_own_is_called_once() -> None:
    numbers: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: numbers.append(number))
    with deferred_interrupts():
        signal.raise_signal(signal.SIGINT)
        assert numbers == []
    assert numbers == [signal.SIGINT]


def test_another_thread_has_nothing_to_hold() -> None:
    failures: list[Exception] = []

    def use() -> None:
        try:
            with deferred_interrupts():
                pass
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert failures == []
