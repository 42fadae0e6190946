"""What a server prints at its start and at its end."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from chairlift.config.settings import Settings
from chairlift.live.shared_memory.counts import Count
from chairlift.serving.banner import example, rules, stopped
from fakes.http_world import HttpWorld
from fakes.small_tokenizer import small_tokenizer, tokenizer_of


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        yield made


@pytest.mark.parametrize(
    ("what", "route", "has_page"),
    [
        ("chat", "/v1/chat/completions", True),
        ("complete", "/v1/completions", True),
        ("embed", "/v1/embeddings", False),
        ("rerank", "/v1/rerank", False),
    ],
)
def test_the_first_request_that_is_proposed_suits_the_model(
    listener: socket.socket, what: str, route: str, has_page: bool
) -> None:
    shown = example(Settings(), listener, what)
    assert f"{route} " in shown
    assert shown.startswith("see it at work in a browser") == has_page


@pytest.mark.parametrize(
    ("template", "what", "path"), [(True, "chat", "chat/completions"), (False, "complete", "completions")]
)
async def test_a_model_without_a_chat_template_is_proposed_what_it_answers(
    template: bool, what: str, path: str, listener: socket.socket
) -> None:
    world = HttpWorld(tokenizer=small_tokenizer() if template else tokenizer_of(None))
    assert world.context.example == what
    body = example(Settings(), listener, what).partition("-d '")[2].removesuffix("'")
    async with world.http() as http:
        answer = await http.post(f"/v1/{path}", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200


def test_rules_that_are_not_the_default_are_named() -> None:
    assert rules(Settings()) == []
    assert rules(Settings(policy="mine:Mine:weight=2", prefill="timed")) == [
        "scheduled by policy mine:Mine:weight=2, prefill timed"
    ]


@pytest.mark.parametrize(
    ("seconds", "ends", "line"),
    [
        (8.4, None, "stopped after 8 s"),
        (8.4, {}, "stopped after 8 s; requests: 0 answered"),
        (
            600,
            {Count.ANSWERED: 12, Count.FAILED: 1, Count.ABORTED: 2, Count.OVERLOADED: 3, Count.REJECTED: 4},
            "stopped after 10 min; requests: 12 answered, 1 failed, 2 aborted, 7 refused",
        ),
        (9000, {Count.ANSWERED: 1}, "stopped after 2.5 h; requests: 1 answered"),
    ],
)
def test_the_last_line_tells_how_requests_ended(seconds: float, ends: dict[Count, Any] | None, line: str) -> None:
    assert stopped(seconds, None if ends is None else lambda count: ends.get(count, 0)) == line
