"""The newer load client of llm-serving's contest, written from its description, against the whole server: a thread for
each request, `--task` for the file of prompts, and streams whose `data` is the object itself."""

import http.client
import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from e2e.conftest import LIMITS, NUMBERS
from fakes.patience import HANG_S
from fakes.served import Served, chairlift, serve

FILES = {1: "alpaca_5010.json", 2: "alpaca_521.json"}
RECORDS = [
    {"instruction": "Name a colour", "input": "", "output": "red and green"},
    {"instruction": "Say it again", "input": "hello world", "output": "hello world, hello there"},
    {"instruction": "Count", "input": "one two", "output": "three four five six seven eight"},
]
NUM_TOKENS = (1, 5, 12)  # of the outputs, as its tokenizer counts them


class NewerClient:
    """A thread that fails vanishes, with its result."""

    def __init__(self, folder: Path, port: int, task: int, rate: float, seconds: int) -> None:
        cases = json.loads((folder / FILES[task]).read_text())
        self._port, self._rate, self._folder = port, rate, folder
        self.prompts = [(_prompt(cases[i % 3]), NUM_TOKENS[i % 3]) for i in range(int(rate * seconds))]
        self.results: list[dict[str, Any]] = []

    def run(self) -> None:
        threads = [threading.Thread(target=self._request, args=each, daemon=True) for each in self.prompts]
        gaps, mean_s = random.Random(0), round(1 / self._rate, 2)
        for thread in threads:
            thread.start()
            time.sleep(gaps.expovariate(1 / mean_s))
        for thread in threads:
            thread.join(HANG_S)
        (self._folder / f"result_{self._rate}_x.json").write_text(json.dumps(self.results))

    def _request(self, prompt: str, max_new_tokens: int) -> None:
        began = time.time()
        parameters = {"max_new_tokens": max_new_tokens, "do_sample": "False", "return_full_text": "True"}
        headers = {"Content-Type": "application/json", "Connection": "close"}
        body = json.dumps({"inputs": prompt, "parameters": parameters})
        first, text = None, ""
        with closing(http.client.HTTPConnection("localhost", self._port, timeout=HANG_S)) as connection:
            connection.request("POST", "/models/llama2/generate_stream", body, headers)
            with connection.getresponse() as lines:
                for line in lines:
                    data = json.loads(line)["data"]
                    if isinstance(data, list):  # of an older server: the client fails
                        return
                    text = data["generated_text"]
                    first = first or time.time() - began
        result = {"input": prompt, "resp_text": text, "res_time": time.time() - began, "first_token_time": first}
        self.results.append(result)


def _prompt(case: dict[str, str]) -> str:
    return f"{case['instruction']}:{case['input']}" if case["input"] else case["instruction"]


pytestmark = pytest.mark.xdist_group("server")  # all in one worker, for those that ask both servers


@pytest.fixture(scope="module")
def newer(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("newer") / "log"
    with serve(log, "--model", tiny_model, *LIMITS, *NUMBERS, "--llm-serving-data", "object") as served:
        yield served


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES.values():
        (tmp_path / name).write_text(json.dumps(RECORDS))
    return tmp_path


def port_of(served: Served) -> int:
    return int(served.url.rpartition(":")[2])


@pytest.mark.nightly
@pytest.mark.parametrize("task", FILES)
def test_it_gets_every_answer_with_all_of_its_text(task: int, newer: Served, server: Served, folder: Path) -> None:
    client = NewerClient(folder, port_of(newer), task, rate=30.0, seconds=1)
    client.run()
    results = json.loads((folder / "result_30.0_x.json").read_text())
    assert len(results) == 30
    assert all(0 < result["first_token_time"] <= result["res_time"] for result in results)
    texts = {result["input"]: result["resp_text"] for result in results}
    assert texts == {prompt: whole_answer(server, prompt, num) for prompt, num in client.prompts[:3]}


def whole_answer(served: Served, prompt: str, max_new_tokens: int) -> str:
    """What a server with lists says at once."""
    parameters = {"max_new_tokens": max_new_tokens, "do_sample": False}
    body = {"inputs": prompt, "parameters": parameters}
    return str(httpx.post(f"{served.url}/models/llama2/generate", json=body, timeout=HANG_S).json()["generated_text"])


def test_it_gets_nothing_from_a_server_with_lists(server: Served, folder: Path) -> None:
    client = NewerClient(folder, port_of(server), 1, rate=3.0, seconds=1)
    client.run()
    assert client.results == []


@pytest.mark.nightly
def test_our_own_client_reads_the_same_stream(newer: Served, tiny_model: Path, folder: Path) -> None:
    asked = ("-X", 30, "-T", 1, "-P", port_of(newer), "-O", "out", "--task", 1, "--model", tiny_model)
    done = chairlift("contest", *asked, folder=folder)
    assert done.returncode == 0, done.stderr
    assert len(json.loads((folder / "out/result_30.0_x.json").read_text())) == 30
