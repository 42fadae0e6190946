"""A server that saves logits, gated while any client runs, at any batch size, also after its engine was killed."""

import json
import os
import re
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from chairlift.cli.main import main
from chairlift.telemetry.logit_files import read_index
from e2e.conftest import NUMBERS
from e2e.test_served_full_disk import fill, on_a_disk
from fakes.patience import wait_until
from fakes.served import Served, chairlift, serve

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "alpaca.json"
    records = [
        {"instruction": "Hello world", "input": "the quick brown fox " * 3 + str(n), "output": "hello there " * n}
        for n in (20, 300, 30, 100, 60, 40)
    ]
    path.write_text(json.dumps(records))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served") / "served"


@pytest.fixture(scope="module")
def server(tiny_model: Path, folder: Path) -> Iterator[Served]:
    options = (*NUMBERS, "--threads", "1", "--max-running", "4", "--save-logits", folder)
    with serve(folder.with_name("log"), "--model", tiny_model, *options) as served:
        yield served


@pytest.fixture(scope="module")
def base(tiny_model: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored") / "base"
    options = ("--model", tiny_model, *NUMBERS, "--threads", "1", "--save", folder)
    run = chairlift("contest", "--accuracy", "--data", data, *options)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


class Judged(NamedTuple):
    code: int
    told: str


@pytest.fixture
def judge(data: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Judged]:
    """The accuracy check, in this process, which takes less time."""

    def check(*more: object) -> Judged:
        options = ("--data", data, "--model", tiny_model, *more)
        code = main(["contest", "--accuracy", *map(str, options)])
        said = capsys.readouterr()
        return Judged(code, said.out + said.err)

    return check


def rows(folder: Path) -> int:
    return len(list((folder / "file_npy").glob("*.npy")))


def names(folder: Path) -> Counter[str]:
    return Counter(path.name.partition("_")[2] for path in (folder / "file_npy").glob("*.npy"))


def test_the_served_path_is_gated_by_rows_and_texts(
    server: Served, folder: Path, base: Path, judge: Callable[..., Judged], tmp_path: Path
) -> None:
    before = read_index(folder)
    code, told = judge("--url", server.url, "--logits", folder, "--against", base)
    stored, new = rows(base), read_index(folder).keys() - before.keys()
    assert code == 0 and stored >= 8 and f"{stored} of {stored} stored rows" in told
    assert len(new) == stored
    # What the server wrote is a reference itself, for a model that runs here.
    (tmp_path / "file_npy").mkdir()
    shutil.copy(folder / "rows.jsonl", tmp_path)
    for name in new:
        shutil.copy(folder / "file_npy" / name, tmp_path / "file_npy")
    code, told = judge(*NUMBERS, "--against", tmp_path)
    assert code == 0, told
    changed = next((tmp_path / "file_npy").glob("*.npy"))
    changed.write_bytes(changed.read_bytes()[:-4] + b"\0\0\0\x42")
    code, told = judge(*NUMBERS, "--against", tmp_path)
    assert code == 1 and "1 of" in told and "rows are off" in told


def test_the_contests_own_client_leaves_the_same_rows(
    server: Served, folder: Path, base: Path, data: Path, tmp_path: Path, tiny_model: Path
) -> None:
    before = names(folder)
    port = re.findall(r":(\d+)", server.url)[-1]
    num = len(json.loads(data.read_text()))
    sent = chairlift(
        *("contest", "-X", num, "-P", port, "-O", tmp_path / "out", "-T", 1, "--data", data, "--model", tiny_model),
        folder=tmp_path,
    )
    assert sent.returncode == 0, sent.stdout + sent.stderr
    wait_until(lambda: rows(folder) == before.total() + rows(base))
    assert names(folder) - before == names(base)


def test_an_engine_that_is_killed_costs_no_row_that_was_written(
    server: Served, folder: Path, base: Path, judge: Callable[..., Judged]
) -> None:
    before, written = read_index(folder), dict[str, str]()

    def new() -> dict[str, str]:
        return {name: prefix for name, prefix in read_index(folder).items() if name not in before}

    def kill() -> None:
        wait_until(lambda: len(new()) >= 2, lambda: server.output)
        written.update(new())
        os.kill(server.pids()[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    code, told = judge("--url", server.url, "--logits", folder, "--against", base)
    killer.join()
    assert "is ready again" in server.output
    found, num = new(), rows(base)
    assert written.items() <= found.items()
    assert len(set(found.values())) == len(found)  # none twice
    if lost := num - len(found):  # those that waited for the disk when it died
        assert code == 2 and f"{lost} of {num} rows of logits were not written by the server" in told
        assert "the engine ended before they were written" in server.output
    else:
        assert code == 0 and f"{num} of {num} stored rows" in told


def test_a_full_disk_loses_rows_and_nothing_else(
    base: Path,
    judge: Callable[..., Judged],
    tmp_path: Path,
    tiny_model: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("chairlift.lab.verify.served._PATIENCE_S", 1.0)  # rows that are dropped never come
    disk = tmp_path_factory.mktemp("disk")
    options = (*NUMBERS, "--threads", "1", "--save-logits", disk / "served")
    with serve(tmp_path / "log", "--model", tiny_model, *options, before=on_a_disk(disk, "1m")) as served:
        seen = Path(f"/proc/{served.process.pid}/root{disk}")
        fill(seen / "rest")
        code, told = judge("--url", served.url, "--logits", seen / "served", "--against", base)
        assert code == 2 and "rows of logits were not written by the server; its log says why" in told
    assert "rows of logits were dropped" in served.output and "No space left on device" in served.output
    assert "Traceback" not in served.output


def test_a_used_folder_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    (tmp_path / "served/x").touch()
    run = chairlift("serve", "--port", 0, "--model", tiny_model, "--save-logits", tmp_path / "served")
    assert run.returncode == 2 and "is there already" in run.stderr
