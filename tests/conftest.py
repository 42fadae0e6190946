"""Said before anything imports torch or triton, and to every process that the tests start."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

# Threads that wait for each other must sleep, not spin: on a busy machine spinning turns seconds into minutes.
os.environ["OMP_WAIT_POLICY"] = "passive"

# Triton reads this when it is imported, and some test that needs no kernels may be the first to do so.
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"

# A shell without job control has those it starts in the background ignore Ctrl-C, and so would all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """As they were, whatever a command did that ran in this process: all that tests start inherits it."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in numbers}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # also one that is still to be heard
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
