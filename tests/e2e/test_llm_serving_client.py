"""A client of llm-serving, written only from its specification, against the server on a real port."""

import http.client
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from fakes.http_world import HttpWorld
from fakes.patience import HANG_S

SAYS = "Hello world, é hello there."


@pytest.fixture
def world() -> HttpWorld:
    return HttpWorld(SAYS)


@pytest.fixture
def address(world: HttpWorld) -> Iterator[str]:
    with world.on_a_port() as url:
        yield url.removeprefix("http://")


@contextmanager
def post(address: str, path: str, body: Any) -> Iterator[http.client.HTTPResponse]:
    with closing(http.client.HTTPConnection(address, timeout=HANG_S)) as connection:
        headers = {"Content-Type": "application/json", "Connection": "close"}
        connection.request("POST", path, json.dumps(body), headers)
        with connection.getresponse() as response:
            yield response


def test_the_load_client_reads_its_stream(address: str, world: HttpWorld) -> None:
    parameters = {"max_new_tokens": 50, "do_sample": "False", "return_full_text": "True"}
    body = {"inputs": "Hi", "parameters": parameters}
    with post(address, "/models/llama2/generate_stream", body) as response:
        assert response.status == 200
        texts = [json.loads(line)["data"][0]["generated_text"] for line in response]
    *pieces, whole = texts
    assert len(pieces) == len(world.answer)
    assert "".join(pieces) == whole == SAYS


def test_the_full_answer_is_one_line_of_json_in_chunks(address: str) -> None:
    with post(address, "/models/internlm/generate", {"inputs": "Hi"}) as response:
        assert response.getheader("Transfer-Encoding") == "chunked"
        assert response.getheader("Content-Type") is None
        [line] = response.readlines()
    assert json.loads(line)["generated_text"] == SAYS


def test_data_lines_have_no_space_and_one_newline(address: str) -> None:
    body = {"inputs": "Hi", "stream": "True", "parameters": {"return_protocol": "none"}}
    with post(address, "/models/llama2", body) as response:
        lines = response.readlines()
    assert all(line.startswith(b"data:{") and line.endswith(b"}\n") for line in lines)
    assert json.loads(lines[-1][5:])["finish_reason"] == "eos"


def test_status_routes_are_server_sent_events(address: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=HANG_S)
    connection.request("GET", "/serving/get_bs")
    with connection.getresponse() as response:
        assert response.getheader("Content-Type") == "text/event-stream; charset=utf-8"
        assert response.read() == b'data: {"event": "message", "retry": 30000, "data": 8}\r\n\r\n'
    connection.close()
