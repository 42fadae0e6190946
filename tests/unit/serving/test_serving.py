import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits
from chairlift.core.ports import DeviceLost
from chairlift.runner.memory.budget import Budget
from chairlift.runner.start.load import Loaded
from chairlift.serving import engine, parent
from chairlift.serving.banner import summary
from chairlift.serving.parent import serve
from fakes.gpu import GIB
from fakes.ledger import LedgerRunner


def test_where_a_gpus_memory_goes_is_a_line_of_its_own() -> None:
    limits = Limits(vocab_size=9, max_model_len=100, block_size=10, num_blocks=25, max_running=4, max_step_tokens=64)
    loaded = Loaded(LedgerRunner(1, 1, 9), limits, "bfloat16", "bfloat16", "none", "cuda", "triton", 8)
    (line,) = summary(loaded)
    assert "KV cache of 25 blocks for 250 tokens (2.5 requests of 100)" in line
    budget = Budget(total=8 * GIB, others=GIB, weights=2 * GIB, activations=GIB, graphs=0, kv=3 * GIB)
    first, second = summary(replace(loaded, budget=budget))
    assert first == line
    assert second.startswith("GPU memory of 8.0 GiB: weights 2.0, ")
    assert "KV cache 3.0, free 1.0" in second
    assert "exact" not in first
    assert "bfloat16, exact (fingerprint c0ffee), triton kernels" in summary(replace(loaded, fingerprint="c0ffee"))[0]


def test_a_port_in_use_is_refused_before_anything_is_loaded() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidConfig, match=f"port {port}: Address already in use; choose another"):
            serve(Settings(port=port))


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:  # short, as the path of a socket must be
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield Path(name)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("where", ["find_model", "listen", "Engines", "make_counts", "make_rate_limits", "Reloader"])
def test_told_to_stop_before_anything_runs_a_server_ends_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, folder: Path, number: int, where: str
) -> None:
    real = getattr(parent, where)

    def interrupted(*args: object) -> object:
        os.kill(os.getpid(), number)
        return real(*args)

    monkeypatch.setattr(parent, where, interrupted)
    monkeypatch.setattr(parent, "Child", lambda *_: pytest.fail("a process was started"))
    assert serve(Settings(port=0)) == 0
    assert list(folder.iterdir()) == []


def test_only_the_servers_user_may_enter_the_folder_that_its_processes_share(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    modes = []

    def interrupted(*_: object) -> NoReturn:
        modes.extend(shared.stat().st_mode & 0o777 for shared in folder.iterdir())
        raise InvalidConfig("enough")

    monkeypatch.setattr(parent, "make_counts", interrupted)
    with pytest.raises(InvalidConfig, match="enough"):
        serve(Settings(port=0))
    assert modes == [0o700]


def test_settings_changed_before_there_is_a_server_to_hear_of_it_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, _: heard.append(number))
    monkeypatch.setattr(parent, "check_access", lambda _: signal.raise_signal(signal.SIGHUP) or [])
    with pytest.raises(InvalidConfig):
        serve(Settings(port=0, model="no such/model at/all"))
    assert heard == []
    assert signal.sigwait({signal.SIGHUP}) == signal.SIGHUP  # it stays pending


@pytest.mark.parametrize(
    ("device", "has_driver", "num_cpus", "expected"),
    [("auto", True, 16, 4), ("auto", True, 8, 2), ("cuda", True, 2, 1), ("cpu", True, 16, 1), ("auto", False, 16, 1)],
)
def test_front_ends_start_by_the_device_and_its_cores(
    monkeypatch: pytest.MonkeyPatch, device: str, has_driver: bool, num_cpus: int, expected: int
) -> None:
    monkeypatch.setattr(parent, "_has_cuda_driver", lambda: has_driver)
    monkeypatch.setattr(parent, "num_processors", lambda: num_cpus)
    assert parent.num_frontends(Settings(device=device)) == expected
    assert parent.num_frontends(Settings(device=device, frontends=3)) == 3


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "no.such.host.invalid"])
def test_a_host_that_is_none_is_refused_in_one_line(host: str) -> None:
    with pytest.raises(InvalidConfig, match=f"cannot listen on {host} port 8000: .*; choose another"):
        serve(Settings(host=host))


def test_an_engine_that_has_lost_its_device_says_why_and_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(engine.os, "_exit", ended.append)
    with engine._ending_with_the_device(1):
        raise DeviceLost("CUDA error: an illegal memory access was encountered")
    assert ended == [1]
    assert "nothing can be computed any more: CUDA error: an illegal memory access" in capsys.readouterr().err
