"""What holds for all tests: what is said before torch or triton is imported, which tests are nightly, who runs them."""

import os
import signal
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Threads that wait for each other must sleep, not spin: on a busy machine spinning turns seconds into minutes.
os.environ["OMP_WAIT_POLICY"] = "passive"

# Triton reads this when it is imported, and some test that needs no kernels may be the first to do so.
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"

# A shell without job control has those it starts in the background ignore Ctrl-C, and so would all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the items of a test marked `sampled(count)`, so many are slow and the others nightly, by a digest of names."""
    found = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("sampled") and not item.get_closest_marker("nightly"):
            found[item.nodeid.partition("[")[0]].append(item)
    for of_test in found.values():
        (count,) = of_test[0].get_closest_marker("sampled").args  # type: ignore[union-attr]
        for i, item in enumerate(sorted(of_test, key=lambda item: zlib.crc32(item.nodeid.encode()))):
            item.add_marker("slow" if i < count else "nightly")


@pytest.hookimpl(optionalhook=True)  # pytest-xdist may be missing
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadgroup` a worker gets a whole file, or all tests that ask one server."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class ByGroupOrFile(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            group = super()._split_scope(nodeid)
            return nodeid.partition("::")[0] if group == nodeid else group

    return ByGroupOrFile(config, log)


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
