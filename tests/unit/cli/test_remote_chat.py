from typing import Any

import pytest

from chairlift.cli.talking.remote import RemoteChat
from chairlift.core.errors import ChairliftError, InvalidConfig
from chairlift.text.responses.reading.events import Content, Reasoning
from fakes.openai_server import answering_server

MESSAGES = [{"role": "user", "content": "hello"}]


def delta(**fields: str) -> dict[str, Any]:
    return {"choices": [{"delta": fields}]}


def test_an_answer_comes_in_pieces_with_its_reasoning_apart() -> None:
    seen: list[dict[str, Any]] = []

    def respond(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        assert path == "/v1/chat/completions"
        seen.append(body)
        return 200, [delta(role="assistant"), delta(reasoning_content="Hm"), delta(content="a "), delta(content="b")]

    with answering_server(respond) as url:
        pieces = list(RemoteChat(url, None, "").stream_chat(MESSAGES, {"temperature": 0.5}))
    assert pieces == [Reasoning("Hm"), Content("a "), Content("b")]
    assert seen == [{"model": "tiny", "messages": MESSAGES, "stream": True, "temperature": 0.5}]


@pytest.mark.parametrize(
    "answer",
    [(400, {"error": {"message": "too long"}}), (200, [delta(content="a"), {"error": {"message": "too long"}}])],
)
def test_a_refusal_or_a_broken_answer_is_one_line(answer: tuple[int, Any]) -> None:
    with answering_server(lambda *_: answer) as url, pytest.raises(ChairliftError, match="^too long$"):
        list(RemoteChat(url, "tiny", "key").stream_chat(MESSAGES, {}))


def test_a_server_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="127.0.0.1:9/v1/models cannot be read"):
        RemoteChat("http://127.0.0.1:9", None, "")
