"""`chairlift batch` against a server that answers from a function."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chairlift.cli.main import main
from fakes.openai_server import answering_server

ROUTE = "/v1/completions"


class Echo:
    """Repeats the prompt. "bad" is refused, "busy" only the first time."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        prompt = body["prompt"]
        self.prompts.append(prompt)
        if prompt == "bad":
            return 400, {"error": {"message": "prompt: is bad"}}
        if prompt == "busy" and self.prompts.count("busy") == 1:
            return 429, {"error": {"message": "later"}}
        return 200, {"text": prompt, "path": path, "usage": {"completion_tokens": 2}}


@pytest.fixture
def server() -> Iterator[tuple[str, Echo]]:
    echo = Echo()
    with answering_server(echo) as url:
        yield url, echo


def line(id: Any, prompt: str, **more: Any) -> str:
    value = {"custom_id": id, "method": "POST", "url": ROUTE, "body": {"prompt": prompt}} | more
    return json.dumps(value) + "\n"


def answers(path: Path) -> dict[str | None, dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return {each["custom_id"]: each for each in found}


def batch(folder: Path, url: str, *lines: str, more: tuple[str, ...] = ()) -> int:
    (folder / "in.jsonl").write_text("".join(lines))
    return main(["batch", str(folder / "in.jsonl"), str(folder / "out.jsonl"), "--url", url, *more])


def test_every_line_has_an_answer(tmp_path: Path, server: tuple[str, Echo], capsys: pytest.CaptureFixture[str]) -> None:
    assert batch(tmp_path, server[0], line("a", "one"), line("b", "busy")) == 0
    found = answers(tmp_path / "out.jsonl")
    body = {"text": "one", "path": ROUTE, "usage": {"completion_tokens": 2}}
    assert found["a"]["response"] == {"status_code": 200, "request_id": "r1", "body": body}
    assert found["a"]["error"] is None
    assert found["a"]["id"].startswith("batch_req_")
    assert found["b"]["response"]["status_code"] == 200  # asked again
    assert "2 of 2 requests answered, in " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "id", "message"),
    [
        ("not json\n", None, "line 2: is not JSON"),
        (line(7, "x"), None, "line 2: custom_id must be text"),
        (line("a", "x"), "a", "line 2: custom_id is that of an earlier line; each must have its own"),
        (line("b", "x", method="GET"), "b", "line 2: method must be POST"),
        (line("b", "x", url="http://elsewhere"), "b", "line 2: url must be a route such as /v1/chat/completions"),
        (line("b", "x", body=[]), "b", "line 2: body must be an object"),
        (line("b", "x", body={"stream": True}), "b", "line 2: body.stream: a batch has whole answers; leave it out"),
    ],
)
def test_a_bad_line_has_its_error_and_harms_no_other(
    tmp_path: Path, server: tuple[str, Echo], wrong: str, id: str | None, message: str
) -> None:
    assert batch(tmp_path, server[0], line("a", "one"), wrong) == 1
    found = [json.loads(each) for each in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(each["error"] is None for each in found) == [False, True]
    failed = next(each for each in found if each["error"] is not None)
    assert (failed["custom_id"], failed["response"], failed["error"]["message"]) == (id, None, message)
    assert server[1].prompts == ["one"]


def test_a_refused_request_has_the_servers_error(tmp_path: Path, server: tuple[str, Echo]) -> None:
    assert batch(tmp_path, server[0], line("a", "bad")) == 1
    response = answers(tmp_path / "out.jsonl")["a"]["response"]
    assert (response["status_code"], response["body"]["error"]["message"]) == (400, "prompt: is bad")


def test_answers_are_never_overwritten_and_can_be_completed(
    tmp_path: Path, server: tuple[str, Echo], capsys: pytest.CaptureFixture[str]
) -> None:
    url, echo = server
    assert batch(tmp_path, url, line("a", "one"), line("b", "bad")) == 1
    before = (tmp_path / "out.jsonl").read_text()
    assert batch(tmp_path, url, line("a", "one")) == 2
    assert "out.jsonl: is there already; name a new file, or append to it with --resume" in capsys.readouterr().err
    assert (tmp_path / "out.jsonl").read_text() == before
    echo.prompts.clear()
    assert batch(tmp_path, url, line("a", "one"), line("b", "two"), more=("--resume",)) == 0
    assert echo.prompts == ["two"]
    assert (tmp_path / "out.jsonl").read_text().startswith(before)
    assert batch(tmp_path, url, line("a", "one"), line("b", "two"), more=("--resume",)) == 0
    assert "all requests have been answered before" in capsys.readouterr().err


def test_a_file_that_holds_something_else_is_not_appended_to(tmp_path: Path, server: tuple[str, Echo]) -> None:
    (tmp_path / "out.jsonl").write_text("my notes\n")
    assert batch(tmp_path, server[0], line("a", "one"), more=("--resume",)) == 2
    assert (tmp_path / "out.jsonl").read_text() == "my notes\n"


def test_an_empty_file_and_a_missing_server_are_mistakes(
    tmp_path: Path, server: tuple[str, Echo], capsys: pytest.CaptureFixture[str]
) -> None:
    assert batch(tmp_path, server[0], "\n") == 2
    assert "there are no requests in it" in capsys.readouterr().err
    assert batch(tmp_path, "http://127.0.0.1:9", line("a", "one")) == 2
    assert "cannot be reached" in capsys.readouterr().err
