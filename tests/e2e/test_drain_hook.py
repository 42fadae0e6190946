"""Two replicas, one of which is removed as Kubernetes removes a pod: by the manifest's own hook, then SIGTERM."""

import signal
import subprocess
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import yaml

from fakes.patience import HANG_S, wait_until
from fakes.served import serve
from fakes.sse import events
from fakes.streams import Streams

MANIFEST = Path(__file__).parents[2] / "deploy" / "kubernetes" / "cpu.yaml"
DELAY_S = "2"  # of the hook; the manifest's own would make the test longer, not better
SHORT: dict[str, Any] = {"prompt": "Hi", "max_tokens": 8, "ignore_eos": True, "stream": True}
LONG = SHORT | {"max_tokens": 400}
OPTIONS = ("--kv-memory", "64MiB", "--frontends", "1", "--kernels", "torch", "--max-running", "8")


class Clients:
    """Ask the replicas they know of in turn, again and again, as a service's proxies pass requests on."""

    def __init__(self, replicas: list[str], num: int) -> None:
        self.answered: Counter[str] = Counter()
        self.other: list[str] = []
        self._replicas = replicas
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(num)
        for i in range(num):
            self._pool.submit(self._ask, i)

    def forget(self, replica: str) -> None:
        self._replicas = [each for each in self._replicas if each != replica]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """A test that fails ends them too."""
        self._is_over.set()
        self._pool.shutdown()

    def _ask(self, number: int) -> None:
        while not self._is_over.is_set():
            number += 1
            replica = self._replicas[number % len(self._replicas)]
            text = self._answer(replica)
            with self._lock:
                if is_complete(text):
                    self.answered[replica] += 1
                else:
                    self.other.append(text)

    @staticmethod
    def _answer(replica: str) -> str:
        try:
            return httpx.post(f"{replica}/v1/completions", json=SHORT, timeout=HANG_S).text
        except httpx.HTTPError as error:
            return repr(error)


def is_complete(text: str) -> bool:
    return text.endswith("data: [DONE]\n\n") and events(text)[-2]["choices"][0]["finish_reason"] == "length"


def container() -> dict[str, Any]:
    [stateful_set] = [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == "StatefulSet"]
    return dict(stateful_set["spec"]["template"]["spec"]["containers"][0])


@pytest.mark.nightly
def test_the_hook_hides_the_end_of_a_replica_from_all_clients(tiny_model: Path, tmp_path: Path) -> None:
    program, _ = container()["lifecycle"]["preStop"]["exec"]["command"]
    [drain] = [each for each in container()["args"] if each.startswith("--drain-timeout")]
    options = ("--model", tiny_model, *OPTIONS, drain)
    with (
        serve(tmp_path / "going", *options) as going,
        serve(tmp_path / "staying", *options) as staying,
        Clients([going.url, staying.url], 4) as clients,
    ):
        wait_until(lambda: clients.answered[going.url] >= 4)
        hook = subprocess.Popen([program, DELAY_S])
        # Proxies learn late that the pod goes: it still serves what they send.
        num_before = clients.answered[going.url]
        wait_until(lambda: clients.answered[going.url] >= num_before + 4 or clients.other)
        assert httpx.get(f"{going.url}/health/ready", timeout=HANG_S).status_code == 200
        clients.forget(going.url)
        assert hook.wait(HANG_S) == 0
        streams = Streams(going.url, LONG, 4)
        going.process.send_signal(signal.SIGTERM)
        assert all(is_complete(text) for text in streams.texts())
        assert going.process.wait(HANG_S) == 0
        num_before = clients.answered[staying.url]
        wait_until(lambda: clients.answered[staying.url] >= num_before + 4)
    assert clients.other == []
    assert "Traceback" not in going.output + staying.output
