"""A server with its folder on a small disk: it reports a full disk at start, and goes on when it fills up later."""

import contextlib
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from fakes.patience import HANG_S, wait_until
from fakes.served import chairlift, serve

pytestmark = pytest.mark.slow

SHORT: dict[str, Any] = {"prompt": "Hello", "max_tokens": 3, "ignore_eos": True}
MANY = SHORT | {"prompt": ["Hello"] * 1000}
OPTIONS = ("--kv-memory", "64MiB", "--kernels", "torch", "--frontends", "1")


def on_a_disk(folder: Path, size: str) -> list[str]:
    """What comes before a command that should see a small file system there, in a namespace of its own."""
    mount = f"mount -t tmpfs -o size={size} none {folder}"
    if subprocess.run(["sh", "-c", f"unshare -Urm {mount}"], capture_output=True).returncode != 0:
        pytest.skip("needs `unshare` and user namespaces in which a tmpfs can be mounted")
    return ["unshare", "-Urm", "sh", "-c", f'{mount} && exec "$@"', "sh"]


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("d", numbered=True)


def test_without_room_a_server_does_not_start_and_says_what_to_do(tiny_model: Path, folder: Path) -> None:
    ended = chairlift(
        *("serve", "--port", 0, "--model", tiny_model, *OPTIONS),
        before=on_a_disk(folder, "1m"),
        environment={"TMPDIR": str(folder)},
    )
    assert ended.returncode == 2
    *_, last = ended.stderr.splitlines()
    assert last.startswith("chairlift: error: ") and "has no room for " in last and "TMPDIR" in last
    assert "Traceback" not in ended.stderr


@pytest.mark.nightly
def test_a_disk_that_fills_up_while_serving_ends_nothing(tiny_model: Path, tmp_path: Path, folder: Path) -> None:
    before, environment = on_a_disk(folder, "8m"), {"TMPDIR": str(folder)}
    log = tmp_path / "log"
    with serve(log, "--model", tiny_model, *OPTIONS, before=before, environment=environment) as served:
        fill(Path(f"/proc/{served.process.pid}/root{folder}/rest"))
        with ThreadPoolExecutor(3) as threads:  # to be noted they need more than a page of the memory that is shared
            many = threads.map(completed, [served.url] * 3, [MANY] * 3)
        assert list(many) == [3000] * 3
        engine, front_ends = served.pids()
        for pid in (engine, *front_ends):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: served.output.count("is ready again after") == 2, lambda: served.output)
        assert completed(served.url, SHORT) == 3
        assert "chairlift_generated_tokens_total 9003" in httpx.get(f"{served.url}/metrics", timeout=HANG_S).text
    assert served.output.count("starting it again") == 2
    assert "Traceback" not in served.output


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    with pytest.raises(OSError, match="No space left"):
        path.with_name("more").write_bytes(b"more")


def completed(url: str, body: dict[str, Any]) -> int:
    response = httpx.post(f"{url}/v1/completions", json=body, timeout=HANG_S)
    assert response.status_code == 200, response.text
    number: int = response.json()["usage"]["completion_tokens"]
    return number
