"""A server that saves logits, gated while any client runs, at any batch size, also after its engine was killed."""

import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from chairlift.telemetry.logit_files import read_index
from e2e.conftest import NUMBERS
from e2e.test_served_full_disk import fill, on_a_disk
from fakes.patience import wait_until
from fakes.served import Served, chairlift, serve

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "alpaca.json"
    records = [
        {"instruction": "Hello world", "input": "the quick brown fox " * 3 + str(n), "output": "hello there " * n}
        for n in (40, 250, 60, 400, 150, 350)
    ]
    path.write_text(json.dumps(records))
    return path


@pytest.fixture
def server(tiny_model: Path, tmp_path: Path) -> Iterator[Served]:
    options = (*NUMBERS, "--threads", "1", "--max-running", "4", "--save-logits", tmp_path / "served")
    with serve(tmp_path / "log", "--model", tiny_model, *options) as served:
        yield served


@pytest.fixture(scope="module")
def base(tiny_model: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored") / "base"
    judged(data, "--model", tiny_model, *NUMBERS, "--threads", "1", "--save", folder)
    return folder


def judged(data: Path, *more: object, code: int = 0) -> str:
    run = chairlift("contest", "--accuracy", "--data", data, *more)
    assert run.returncode == code, run.stdout + run.stderr
    return run.stdout + run.stderr


def rows(folder: Path) -> int:
    return len(list((folder / "file_npy").glob("*.npy")))


def test_the_served_path_is_gated_by_rows_and_texts(
    server: Served, base: Path, data: Path, tmp_path: Path, tiny_model: Path
) -> None:
    told = judged(data, "--url", server.url, "--logits", tmp_path / "served", "--against", base, "--model", tiny_model)
    stored = rows(base)
    assert stored >= 8 and f"{stored} of {stored} stored rows" in told
    assert rows(tmp_path / "served") == stored
    # What the server wrote is a reference itself, for a model that runs here.
    judged(data, "--model", tiny_model, *NUMBERS, "--against", tmp_path / "served")
    changed = next((tmp_path / "served/file_npy").glob("*.npy"))
    changed.write_bytes(changed.read_bytes()[:-4] + b"\0\0\0\x42")
    told = judged(data, "--model", tiny_model, *NUMBERS, "--against", tmp_path / "served", code=1)
    assert "1 of" in told and "rows are off" in told


def test_the_contests_own_client_leaves_the_same_rows(
    server: Served, base: Path, data: Path, tmp_path: Path, tiny_model: Path
) -> None:
    port = re.findall(r":(\d+)", server.url)[-1]
    num = len(json.loads(data.read_text()))
    sent = chairlift(
        *("contest", "-X", num, "-P", port, "-O", tmp_path / "out", "-T", 1, "--data", data, "--model", tiny_model),
        folder=tmp_path,
    )
    assert sent.returncode == 0, sent.stdout + sent.stderr
    wait_until(lambda: rows(tmp_path / "served") == rows(base))
    assert names(tmp_path / "served") == names(base)


def names(folder: Path) -> list[str]:
    return sorted(path.name.partition("_")[2] for path in (folder / "file_npy").glob("*.npy"))


def test_an_engine_that_is_killed_costs_no_row_that_was_written(
    server: Served, base: Path, data: Path, tmp_path: Path, tiny_model: Path
) -> None:
    folder, written = tmp_path / "served", dict[str, str]()

    def kill() -> None:
        wait_until(lambda: len(read_index(folder)) >= 2, lambda: server.output)
        written.update(read_index(folder))
        os.kill(server.pids()[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    more = ("--url", server.url, "--logits", folder, "--against", base, "--model", tiny_model)
    run = chairlift("contest", "--accuracy", "--data", data, *more)
    killer.join()
    assert "is ready again" in server.output
    found, num = read_index(folder), rows(base)
    assert written.items() <= found.items()
    assert len(set(found.values())) == len(found)  # none twice
    if lost := num - len(found):  # those that waited for the disk when it died
        assert run.returncode == 2 and f"{lost} of {num} rows of logits were not written by the server" in run.stdout
        assert "the engine ended before they were written" in server.output
    else:
        assert run.returncode == 0 and f"{num} of {num} stored rows" in run.stdout


def test_a_full_disk_loses_rows_and_nothing_else(
    base: Path, data: Path, tmp_path: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    disk = tmp_path_factory.mktemp("disk")
    options = (*NUMBERS, "--threads", "1", "--save-logits", disk / "served")
    with serve(tmp_path / "log", "--model", tiny_model, *options, before=on_a_disk(disk, "1m")) as served:
        seen = Path(f"/proc/{served.process.pid}/root{disk}")
        fill(seen / "rest")
        more = ("--url", served.url, "--logits", seen / "served", "--against", base, "--model", tiny_model)
        told = judged(data, *more, code=2)
        assert "rows of logits were not written by the server; its log says why" in told
    assert "rows of logits were dropped" in served.output and "No space left on device" in served.output
    assert "Traceback" not in served.output


def test_a_used_folder_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    (tmp_path / "served/x").touch()
    run = chairlift("serve", "--port", 0, "--model", tiny_model, "--save-logits", tmp_path / "served")
    assert run.returncode == 2 and "is there already" in run.stderr
