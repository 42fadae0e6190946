import multiprocessing
import os
import signal
import threading
from pathlib import Path

import pytest

from chairlift.live.shared_memory.counts import Count, Counts, make_counts
from chairlift.live.shared_memory.service_rate import ServiceRate, mark, rate
from fakes.page_processes import hold, take_while_below
from fakes.patience import HANG_S, wait_until

_spawn = multiprocessing.get_context("spawn")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "counts"
    make_counts(path, 4)
    return path


def test_processes_that_look_and_take_under_the_lock_never_take_too_many(page: Path) -> None:
    takers = [_spawn.Process(target=take_while_below, args=(page, row, 1000)) for row in range(4)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join(HANG_S)
    assert Counts(page).total(Count.WAITING) == 1000


def test_the_lock_of_a_process_that_is_killed_is_free_again(page: Path) -> None:
    holder = _spawn.Process(target=hold, args=(page,))
    holder.start()
    wait_until((page.parent / "held").exists)
    taken = threading.Event()

    def take() -> None:
        with Counts(page).locked():
            taken.set()

    threading.Thread(target=take, daemon=True).start()
    assert not taken.wait(0.2)
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    assert taken.wait(HANG_S)
    holder.join(HANG_S)


def test_clearing_a_row_takes_back_what_was_open_and_keeps_what_was_done(page: Path) -> None:
    first, second = Counts(page, 0), Counts(page, 1)
    for counts in (first, second):
        for count in Count:
            counts.add(count, 5)
    assert first.clear(1) == 5
    totals = {count: first.total(count) for count in Count}
    assert [totals[count] for count in (Count.WAITING, Count.WAITING_TOKENS, Count.OPEN, Count.CONNECTIONS)] == [5] * 4
    assert [totals[count] for count in (Count.FINISHED, Count.FINISHED_TOKENS)] == [10, 10]


def test_the_latest_of_all_rows_is_found(page: Path) -> None:
    Counts(page, 1).put(Count.HEARD_NS, 30)
    Counts(page, 3).put(Count.HEARD_NS, 20)
    assert Counts(page).latest(Count.HEARD_NS) == 30


def test_the_rate_is_what_all_front_ends_finished_over_the_last_half_minute(page: Path) -> None:
    first, second = Counts(page, 0), Counts(page, 1)
    for second_of in range(100):  # two a second, then four
        for counts in (first, second):
            counts.add(Count.FINISHED, 1 if second_of < 60 else 2)
            counts.add(Count.FINISHED_TOKENS, 10)
        mark(second, 1000.0 + second_of)
    assert rate(first, 1099.0) == ServiceRate(120, 600, 30.0)


def test_marks_that_come_thick_and_fast_do_not_shorten_the_while(page: Path) -> None:
    counts = Counts(page)
    for tenth in range(400):
        counts.add(Count.FINISHED, 1)
        mark(counts, 50.0 + tenth / 10)
    found = rate(counts, 90.0)
    assert 28 <= found.seconds <= 30
    assert found.num_requests == pytest.approx(10 * found.seconds, abs=10)


def test_a_server_that_was_idle_starts_to_measure_when_the_next_request_comes(page: Path) -> None:
    counts = Counts(page)
    counts.add(Count.FINISHED, 100)
    mark(counts, 10.0)
    assert rate(counts, 500.0) == ServiceRate()
    mark(counts, 500.0)
    counts.add(Count.FINISHED, 3)
    assert rate(counts, 502.0) == ServiceRate(3, 0, 2.0)


def test_connections_of_an_address_count_over_all_front_ends_until_theirs_is_gone(page: Path) -> None:
    first, second = Counts(page, 0), Counts(page, 1)
    first.add_from("192.0.2.1", 1)
    first.add_from("2001:db8::/64", 3)
    second.add_from("2001:db8::/64", 2)
    assert first.total_from("2001:db8::/64") == 5
    assert second.total_from("198.51.100.1") == 0
    second.clear(0)
    assert first.total_from("2001:db8::/64") == 2
