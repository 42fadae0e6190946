"""What processes share has its place on the disk from the start; where there is none, a server says so."""

import errno
import os
from itertools import product
from pathlib import Path

import pytest

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.live.recovery.step_note import StepNote
from chairlift.live.shared_memory.counts import make_counts
from chairlift.live.shared_memory.rate_limits import make_rate_limits
from chairlift.serving.parent import serve
from chairlift.telemetry.mapped import make_mapped
from chairlift.telemetry.metrics.series import SERIES
from chairlift.telemetry.metrics.store import Store


def has_its_place(path: Path) -> bool:
    found = path.stat()
    return found.st_size > 0 and found.st_blocks * 512 >= found.st_size


def test_every_byte_that_processes_share_is_on_the_disk(tmp_path: Path) -> None:
    StepNote(tmp_path / "steps")
    make_counts(tmp_path / "counts", 3)
    make_rate_limits(tmp_path / "rates")
    (tmp_path / "metrics").mkdir()
    Store(tmp_path / "metrics", "engine").counter("chairlift_prompt_tokens_total").add()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 7
    assert [path.name for path in files if not has_its_place(path)] == []


def test_the_files_of_the_metrics_never_grow(tmp_path: Path) -> None:
    store = Store(tmp_path, "front-end-0")
    sizes = {path: path.stat().st_size for path in tmp_path.iterdir()}
    for name, series in SERIES.items():
        make = {"counter": store.counter, "gauge": store.gauge, "histogram": store.histogram}[series.kind]
        for labels in product(["/models/llama2/generate_stream", "/v1/chat/completions"], repeat=len(series.labels)):
            make(name, *labels)
    for route, code in product(range(50), range(400, 415)):  # more than there are of either
        store.counter("chairlift_http_responses_total", f"/models/llama2/generate_stream/{route}", str(code))
    assert {path: path.stat().st_size for path in tmp_path.iterdir()} == sizes


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345678")
    make_mapped(tmp_path / "file", 4096)
    assert (tmp_path / "file").read_bytes() == b"12345678" + bytes(4088)


def test_a_server_without_room_on_the_disk_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(InvalidConfig, match=r"has no room for 2,304 KiB .*: No space left .*; .* folder in TMPDIR"):
        serve(Settings(port=0))


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF])
def test_a_file_system_that_cannot_allocate_has_the_zeros_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    path = tmp_path / "page"
    path.write_bytes(b"kept")
    make_mapped(path, 10_000)
    assert path.read_bytes() == b"kept" + bytes(9_996)
    assert has_its_place(path)
