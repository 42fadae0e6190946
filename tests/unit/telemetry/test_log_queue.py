"""Lines on their way to a log that is read late, never or not at all."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import pytest

from chairlift.telemetry.log_lines import MAX_WAITING, LogQueue, write_whole
from fakes.patience import HANG_S, wait_until

# A process whose log no one reads: it goes on, and ends a moment after it is told to.
_PROCESS = """
import logging, time
from chairlift.telemetry.log_lines import num_dropped, set_up_logging
set_up_logging("info", "text")
for number in range(4000):
    logging.getLogger().info("line %d %s", number, "x" * 1000)
print(num_dropped(), flush=True)
"""


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def queue_to(file: int) -> LogQueue:
    return LogQueue(partial(write_whole, file), lambda count: f"{count} dropped")


def read(file: int, until: str) -> str:
    text = ""
    while until not in text:
        text += os.read(file, 2**16).decode()
    return text


@pytest.mark.parametrize("blocks", [True, False])
def test_lines_beyond_the_bound_are_dropped_counted_and_told_of_when_the_log_is_read(
    pipe: tuple[int, int], blocks: bool
) -> None:
    os.set_blocking(pipe[1], blocks)
    queue = queue_to(pipe[1])
    line = "x" * 999
    for _ in range(2000):
        queue.put(line)
    dropped = queue.num_dropped
    assert 2000 - dropped in range(MAX_WAITING // 1000, (MAX_WAITING + 2**17) // 1000)
    found = read(pipe[0], f"{dropped} dropped\n")
    queue.put("after")
    found += read(pipe[0], "after\n")
    assert sorted(found.splitlines()) == sorted([line] * (2000 - dropped) + [f"{dropped} dropped", "after"])
    assert queue.num_dropped == dropped


def test_a_full_disk_counts_lines_as_dropped() -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        queue = queue_to(full.fileno())
        queue.put("a line")
        wait_until(lambda: queue.num_dropped == 1)


def test_a_process_whose_log_is_not_read_goes_on_and_ends(pipe: tuple[int, int]) -> None:
    done = subprocess.run(  # within its time, or it raises
        [sys.executable, "-c", _PROCESS], stdout=subprocess.PIPE, stderr=pipe[1], text=True, timeout=HANG_S
    )
    assert done.returncode == 0
    assert int(done.stdout) > 2000
