"""Whole answers with much in them: what choices share is made once, and others run while it is made."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from chairlift.server.admission import cost
from chairlift.server.admission.cost import MAX_PROMPT_SCORES
from chairlift.server.openai import logprobs, whole
from chairlift.server.openai.logprobs import CompletionScores
from chairlift.server.openai.whole import whole_response
from chairlift.text.tokenizer import Tokenizer
from fakes.http_world import HttpWorld
from fakes.sse import events

PROMPTS = ["Paris is the capital", "The quick brown fox"]


async def choices(world: HttpWorld, **body: Any) -> list[Any]:
    response = await world.post("/v1/completions", {"prompt": PROMPTS, "max_tokens": 3, **body})
    assert response.status_code == 200, response.text
    if not body.get("stream"):
        found: list[Any] = response.json()["choices"]
        return found
    parts = [part["choices"][0] for part in events(response.text)[:-1]]
    return [part for index, part in enumerate(parts) if part["index"] not in [each["index"] for each in parts[:index]]]


def num_scored(world: HttpWorld) -> int:
    return sum(len(world.tokenizer.encode(prompt)) - 1 for prompt in PROMPTS)


async def test_scores_of_a_prompt_are_made_once_for_all_its_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    made, make = [], logprobs._prompt_logprob
    monkeypatch.setattr(logprobs, "_prompt_logprob", lambda *given: made.append(given) or make(*given))
    monkeypatch.setattr(logprobs, "_AT_ONCE", 8)  # two tokens in each piece
    world = HttpWorld()
    several = await choices(world, n=4, prompt_logprobs=3)
    assert len(made) == num_scored(world)
    alone = await choices(world, prompt_logprobs=3)
    assert [each["prompt_logprobs"] for each in several] == [alone[i // 4]["prompt_logprobs"] for i in range(8)]
    assert [len(each["prompt_logprobs"]) for each in alone] == [len(world.tokenizer.encode(text)) for text in PROMPTS]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_echoed_prompt_is_decoded_and_scored_once_for_all_its_choices(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded, scored = [], []
    decode, top = Tokenizer.decode, CompletionScores._top
    monkeypatch.setattr(Tokenizer, "decode", lambda *given: decoded.append(given) or decode(*given))
    monkeypatch.setattr(CompletionScores, "_top", lambda *given: scored.append(given) or top(*given))
    world = HttpWorld()
    asked = {"echo": True, "logprobs": 2, "stream": stream, "max_tokens": 1}
    several = await choices(world, n=4, **asked)
    assert (len(decoded), len(scored)) == (len(PROMPTS), num_scored(world) + 8)
    alone = await choices(world, **asked)
    assert [each | {"index": 0} for each in several] == [alone[i // 4] | {"index": 0} for i in range(8)]
    lists = alone[1]["logprobs"]
    assert "".join(lists["tokens"]) == alone[1]["text"] == PROMPTS[1] + "Hello"
    assert lists["text_offset"][-1] == len(PROMPTS[1]) and lists["top_logprobs"][0] is None
    assert len({*map(len, lists.values())}) == 1


@pytest.mark.parametrize("asked", [{"prompt_logprobs": 20}, {"echo": True, "logprobs": 20}])
async def test_more_scores_of_prompts_than_a_body_may_have_are_refused(asked: dict[str, Any]) -> None:
    world = HttpWorld(max_body_bytes=1_000_000)
    prompt = [[5] * (MAX_PROMPT_SCORES // (100 * 8 * 21) + 1)] * 100
    response = await world.post("/v1/completions", {"prompt": prompt, "n": 8, "max_tokens": 1, **asked})
    assert (response.status_code, world.client.requests) == (400, [])
    message = response.json()["error"]["message"]
    assert "prompt_logprobs: must ask for at most 4194304 scores of prompts in all" in message
    assert "25000 prompt tokens x 8 choices (n) x 21 (1 + prompt_logprobs, or logprobs with echo)" in message


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/completions", {"prompt": [[5, 6]] * 8, "logprobs": 100}),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "Hi"}], "logprobs": True, "top_logprobs": 7},
        ),
        ("/v1/responses", {"input": "Hi", "include": ["message.output_text.logprobs"], "top_logprobs": 7}),
    ],
)
async def test_more_scores_of_answers_than_a_body_may_have_are_refused(
    path: str, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "MAX_TOLD_SCORES" if path == "/v1/responses" else "MAX_SCORES", 1_000)
    world = HttpWorld()
    more = {"max_output_tokens": 400} if path == "/v1/responses" else {"n": 2, "max_tokens": 200}
    response = await world.post(path, asked | more)
    assert (response.status_code, world.client.requests) == (400, [])
    assert "logprobs: must ask for at most 1000 scores of tokens in all" in response.json()["error"]["message"]
    if path == "/v1/chat/completions":  # where a body does not say, answers end in time
        assert (await world.post(path, asked | {"n": 2})).status_code == 200
        assert world.client.requests[0].params.max_tokens == 1_000 // 16


async def test_more_than_a_body_may_send_with_all_its_prompts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "MAX_REPEATED", 20)
    for field, value in (("guided_regex", "[0-9]{3}"), ("allowed_token_ids", [5, 6, 7, 8, 9, 10])):
        for count, status in ((1, 200), (4, 400)):
            body = {"prompt": [[5]] * count, "max_tokens": 3, field: value}
            response = await HttpWorld("123").post("/v1/completions", body)
            assert (response.status_code, field in response.text) == (status, status == 400)


async def test_more_ids_of_prompts_than_a_body_may_be_told_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "MAX_SHOWN_IDS", 20)
    for n, asked, status in ((2, True, 200), (3, True, 400), (3, False, 200)):
        body = {"prompt": [5] * 10, "n": n, "max_tokens": 1, "return_token_ids": asked}
        response = await HttpWorld("123").post("/v1/completions", body)
        assert (response.status_code, "10 prompt tokens x 3 choices" in response.text) == (status, status == 400)


async def test_a_long_answer_is_made_as_its_client_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"prompt": PROMPTS, "n": 3, "logprobs": 5, "echo": True}
    world = HttpWorld()
    at_once = await world.post("/v1/completions", asked)
    monkeypatch.setattr(whole, "_KEPT", 100)
    monkeypatch.setattr(logprobs, "_AT_ONCE", 8)
    in_pieces = await world.post("/v1/completions", asked)
    assert in_pieces.json()["choices"] == at_once.json()["choices"]
    assert ("content-length" in at_once.headers, "content-length" in in_pieces.headers) == (True, False)


async def test_other_requests_run_between_two_large_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, is_over = [], asyncio.Event()

    async def another() -> None:
        while not is_over.is_set():
            seen.append(len(made))
            await asyncio.sleep(0)

    def pieces() -> Iterator[bytes]:
        for _ in range(5):
            made.append(b"a" * 100_000)
            yield made[-1]

    made: list[bytes] = []
    monkeypatch.setattr(whole, "PIECE_S", 0.0)
    task = asyncio.ensure_future(another())
    await whole_response(pieces())
    is_over.set()
    await task
    assert {1, 2, 3, 4} <= set(seen)
