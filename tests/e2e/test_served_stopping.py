"""A whole server that drains, that is in a hurry, and that reads its settings again."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fakes.patience import HANG_S, wait_until
from fakes.served import Served, serve
from fakes.sse import events
from fakes.streams import Streams
from fakes.tiny_model import write_tiny_model

pytestmark = pytest.mark.slow

LONG: dict[str, Any] = {"prompt": "Hi", "max_tokens": 400, "ignore_eos": True, "stream": True}
LONG["stream_options"] = {"include_usage": True}
ENDLESS = LONG | {"max_tokens": 90_000}
OPTIONS = ("--kv-memory", "64MiB", "--frontends", "2", "--kernels", "torch", "--max-running", "4")


@contextmanager
def serving(model: Path, tmp_path: Path, *options: object, **more: Any) -> Iterator[Served]:
    with serve(tmp_path / "log", "--model", model, *OPTIONS, *options, **more) as served:
        yield served


def test_told_to_stop_it_refuses_new_work_in_words_and_finishes_what_it_has(tiny_model: Path, tmp_path: Path) -> None:
    with serving(tiny_model, tmp_path) as served:
        engine, front_ends = served.pids()
        streams = Streams(served.url, LONG, 4)
        served.process.send_signal(signal.SIGTERM)
        wait_until(lambda: httpx.get(f"{served.url}/health/ready", timeout=HANG_S).status_code == 503)
        refused = httpx.post(f"{served.url}/v1/completions", json=LONG, timeout=HANG_S)
        assert (refused.status_code, refused.headers["connection"]) == (503, "close")
        assert int(refused.headers["retry-after"]) >= 1
        assert httpx.get(f"{served.url}/health/live", timeout=HANG_S).status_code == 200
        for text in streams.texts():
            *_, last, usage, done = events(text)
            assert last["choices"][0]["finish_reason"] == "length"
            assert (usage["usage"]["completion_tokens"], done) == (400, "[DONE]")
        assert served.process.wait(HANG_S) == 0
    assert "Traceback" not in served.output
    last = served.output.splitlines()[-1]
    assert last.startswith("chairlift: stopped after ")
    assert last.endswith("; requests: 4 answered, 1 refused")
    for pid in (engine, *front_ends):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["drain timeout", "second signal"])
def test_what_is_not_finished_in_time_ends_with_an_error_that_can_be_read(
    tiny_model: Path, tmp_path: Path, how: str
) -> None:
    options = ("--drain-timeout", "0.5") if how == "drain timeout" else ()
    with serving(tiny_model, tmp_path, *options) as served:
        streams = Streams(served.url, ENDLESS, 3)
        served.process.send_signal(signal.SIGINT)
        if how == "second signal":
            wait_until(lambda: "finishing the requests in flight; once more to stop at once" in served.output)
            served.process.send_signal(signal.SIGINT)
        for text in streams.texts():
            *chunks, error, done = events(text)
            assert (error["error"]["code"], done) == ("503", "[DONE]")
            assert error["error"]["message"] == "the server is stopping; another one may take this request"
            assert chunks
        assert served.process.wait(HANG_S) == 0
    assert "Traceback" not in served.output


@pytest.mark.nightly
def test_settings_are_read_again_everywhere_and_a_mistake_changes_nothing(tmp_path: Path) -> None:
    """The model has no chat template and the policy is one's own, which are told at the start."""
    model, config = write_tiny_model(tmp_path / "plain"), tmp_path / "config.yaml"
    (model / "tokenizer_config.json").unlink()
    (tmp_path / "mine.py").write_text("from chairlift.core.policies.rankings import Fcfs\n\n\nclass Mine(Fcfs): ...\n")
    own = {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2] / 'src'}"}
    config.write_text("max_waiting: 100\nadmin_port: 0\n")
    with serving(model, tmp_path, "--config", config, "--policy", "mine:Mine", environment=own) as served:
        assert "chairlift: scheduled by policy mine:Mine\n" in served.output
        assert f"curl {served.url}/v1/completions " in served.output
        assert "chat/completions" not in served.output
        assert limits(served.url) == {100}
        config.write_text("max_waiting: 5\nadmin_port: 0\nmax_running: 3\nblock_size: 8\n")
        served.process.send_signal(signal.SIGHUP)
        wait_until(lambda: limits(served.url) == {5})
        assert f"in a browser, {served.url}/, or try it:" in served.output
        assert "max_waiting is 5 now; block_size needs a restart to change" in served.output
        admin = next(line for line in served.output.splitlines() if "admin" in line).rpartition(" ")[2]
        config.write_text("max_waiting: many\n")
        refused = httpx.post(f"{admin}/admin/reload", timeout=HANG_S)
        assert refused.status_code == 400
        assert "max_waiting" in refused.json()["error"]["message"]
        config.write_text("max_waiting: 6\nadmin_port: 0\n")
        assert httpx.post(f"{admin}/admin/reload", timeout=HANG_S).json()["changed"] == ["max_waiting"]
        wait_until(lambda: limits(served.url) == {6})
        assert httpx.post(f"{served.url}/admin/reload", timeout=HANG_S).status_code == 404


def limits(url: str) -> set[int]:
    """As any front end tells them that happens to answer."""
    told = [httpx.get(f"{url}/openapi.json", timeout=HANG_S).json() for _ in range(12)]
    return {each["info"]["x-limits"]["max_waiting"] for each in told}
