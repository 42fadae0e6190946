"""Text that is too long: refused by its characters or at the token too many, by one thread, and paid for."""

import asyncio
import json
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from chairlift.live.shared_memory.counts import Count
from chairlift.live.shared_memory.rate_limits import RateLimits
from chairlift.server.admission import bodies
from chairlift.server.openai import exchange, turns
from chairlift.server.openai.models import MAX_TOKENS
from chairlift.text.responses.turn import ChatTurn, turn_of
from chairlift.text.tokenizer import Tokenizer
from fakes.http_world import HttpWorld

ALICE = "sk-alice-0123456789"
LONG = 20 * 2**20
HELLO = {"role": "user", "content": "Hello"}
BODIES: dict[str, Any] = {
    "/v1/completions": lambda text: {"prompt": text, "max_tokens": 1},
    "/v1/chat/completions": lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 1},
    "/models/small/generate": lambda text: {"inputs": text},
    "/tokenize": lambda text: {"prompt": text},
}


def repr_of(text: str) -> str:
    return text[:3]


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """How long each text was that became tokens, and in which thread."""
    found, encode = list[tuple[int, int]](), Tokenizer.encode_piece

    def noting(tokenizer: Tokenizer, text: str, *given: Any, **more: Any) -> list[int]:
        found.append((len(text), threading.get_ident()))
        return encode(tokenizer, text, *given, **more)

    monkeypatch.setattr(Tokenizer, "encode_piece", noting)
    return found


def big_world(**settings: Any) -> HttpWorld:
    world = HttpWorld(max_body_bytes=LONG, **settings)
    _ = world.tokenizer.long_texts  # is looked at once
    return world


@pytest.mark.parametrize("path", BODIES)
async def test_more_characters_than_could_fit_are_refused_without_making_a_token(
    path: str, encoded: list[tuple[int, int]]
) -> None:
    world = big_world()
    encoded.clear()
    answer = await world.post(path, BODIES[path]("Hello there. " * 300_000))
    if path.startswith("/models"):
        assert "out of range" in answer.text
    else:
        assert answer.status_code == 400
        assert "characters make more than" in answer.json()["error"]["message"]
    assert encoded == []


def called(text: str) -> list[dict[str, Any]]:
    function = {"name": "f", "arguments": json.dumps({"a": text})}
    return [HELLO, {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": function}]}]


def used(text: str) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {"a": text}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "b"}
    return [HELLO, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def tool(text: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "description": text}}


@pytest.mark.parametrize(
    ("path", "body", "is_early"),
    [
        ("/v1/chat/completions", lambda text: {"messages": called(text)}, True),
        ("/v1/messages", lambda text: {"messages": used(text), "max_tokens": 9}, True),
        ("/v1/chat/completions", lambda text: {"messages": [HELLO], "tools": [tool(text)]}, True),
        (
            "/v1/chat/completions",
            lambda text: {"messages": [HELLO], "tools": [tool(text)], "tool_choice": "none"},
            False,
        ),
    ],
    ids=["arguments", "input", "tools", "tools that are not shown"],
)
async def test_calls_and_tools_count_before_the_prompt_is_made(
    path: str, body: Any, is_early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def noting(*given: Any) -> ChatTurn:
        made.append(given)
        return turn_of(*given)

    monkeypatch.setattr(turns, "turn_of", noting)
    answer = await big_world().post(path, body("Hello there. " * 300_000))
    if is_early:
        assert "characters make more than" in answer.json()["error"]["message"]
    assert (answer.status_code, bool(made)) == ((400, False) if is_early else (200, True))


@pytest.mark.parametrize("path", [path for path in BODIES if path != "/tokenize"])
async def test_a_text_is_given_up_at_the_piece_with_a_token_too_many(path: str, encoded: list[tuple[int, int]]) -> None:
    world = big_world()
    world.client.limits = replace(world.client.limits, max_model_len=50_000, num_blocks=20_000)
    encoded.clear()
    answer = await world.post(path, BODIES[path]("Hello there. " * 40_000))  # 520,000 characters, 160,000 tokens
    if not path.startswith("/models"):
        assert "more than 49999 tokens leave no room" in answer.json()["error"]["message"]
    assert max(length for length, _ in encoded) < 20_000
    assert sum(length for length, _ in encoded) < 220_000
    assert len({thread for _, thread in encoded}) == 1


async def test_a_text_too_long_in_a_list_is_refused_before_any_other_is_looked_at(
    encoded: list[tuple[int, int]],
) -> None:
    prompts = ["Hello", "Hello there. " * 400_000]
    world = big_world()
    encoded.clear()
    answer = await world.post("/v1/completions", {"prompt": prompts, "max_tokens": 1})
    assert answer.status_code == 400
    assert "characters make more than" in answer.json()["error"]["message"]
    assert encoded == []


async def test_what_fits_is_served_however_long_it_is_written() -> None:
    world = big_world()
    answer = await world.post("/v1/completions", {"prompt": " hello" * 390, "max_tokens": 1})
    assert answer.status_code == 200
    longest = max((world.tokenizer.piece(token) for token in range(world.tokenizer.vocab_size)), key=len)
    answer = await world.post("/v1/completions", {"prompt": longest * 390, "max_tokens": 1})
    assert (answer.status_code, answer.json()["usage"]["prompt_tokens"]) == (200, 390)


async def test_all_long_texts_share_one_thread(encoded: list[tuple[int, int]]) -> None:
    world = big_world()
    encoded.clear()
    texts = ["Hello there. " * 2000] * 6
    await asyncio.gather(*(world.post("/tokenize", {"prompt": text}) for text in texts))
    assert len({thread for _, thread in encoded}) == 1
    assert threading.get_ident() not in {thread for _, thread in encoded}


async def test_more_tokens_than_are_handled_at_once_are_not_put_together() -> None:
    answer = await big_world().post("/detokenize", {"tokens": [1] * (MAX_TOKENS + 1)})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tokens")


@pytest.mark.parametrize(
    "many",
    [[1] * 1_100_000, [[1]] * 70_000, [{}] * 70_000, ["a"] * 70_000, {str(i): 1 for i in range(70_000)}],
    ids=["numbers", "lists", "objects", "strings", "fields"],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/models/small/generate"])
async def test_a_body_of_many_values_is_refused_before_they_are_made(
    path: str, many: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*given: object, **more: object) -> None:
        raise AssertionError("it is decoded")

    for decoder in ("chairlift.server.openai.exchange.read", "chairlift.server.llm_serving.generate.decode"):
        monkeypatch.setattr(decoder, never)
    answer = await big_world().post(path, {"inputs": "Hi", "prompt": "Hi", "more": many})
    assert answer.status_code == 400
    assert "body: must hold at most" in answer.text


@pytest.mark.parametrize("text", [", " * 600_000, '"[{' * 100_000, '\\"' * 100_000, "\\" * 100_001], ids=repr_of)
async def test_a_text_may_hold_any_signs(text: str) -> None:
    answer = await big_world().post("/tokenize", {"prompt": "Hi", "unknown": text})
    assert answer.status_code == 200


@pytest.mark.parametrize("path", [path for path in BODIES if path != "/tokenize"])
async def test_a_key_pays_for_work_before_a_refusal(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paid, charge = list[tuple[int, int]](), RateLimits.charge

    def noting(rates: RateLimits, key: Any, num_tokens: int, now: float, num_requests: int = 0) -> None:
        paid.append((num_tokens, num_requests))
        charge(rates, key, num_tokens, now, num_requests)

    monkeypatch.setattr(RateLimits, "charge", noting)
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"- {{key: {ALICE}, requests_per_minute: 4, tokens_per_minute: 1000000}}\n")
    world = big_world(api_key_file=keys)
    async with world.http() as http:
        http.headers["Authorization"] = f"Bearer {ALICE}"
        texts = ("Hello " * 1000, "Hello there. " * 300_000, "Hello " * 1000, "Hello " * 1000)
        codes = [(await http.post(path, json=BODIES[path](text))).status_code for text in (*texts, "Hi")]
    assert codes[-1] == 429  # of four requests a minute
    assert [num_requests for _, num_requests in paid] == [1, 1, 1, 1]
    assert paid[0][0] > 999 and paid[1][0] == 13 * 300_000 // 1024


async def test_large_bodies_wait_for_each_other_and_small_ones_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "ROOM", 200_000)
    world = big_world()
    counts, most, begin = world.context.load.counts, 0, bodies.Body._try

    def noting(body: bodies.Body, num_bytes: int) -> bool:
        nonlocal most
        has_room = begin(body, num_bytes)
        most = max(most, counts.total(Count.BODY_BYTES))
        return has_room

    monkeypatch.setattr(bodies.Body, "_try", noting)
    large, small = "Hello there. " * 12_000, "Hello there."
    answers = await asyncio.gather(
        *(world.post("/tokenize", {"prompt": text}) for text in (large, large, large, small))
    )
    assert [answer.status_code for answer in answers] == [200] * 4
    assert 150_000 < most <= 200_000  # of 468,000 in all
    assert counts.total(Count.BODY_BYTES) == 0


async def test_a_large_body_that_finds_no_room_in_time_is_429(monkeypatch: pytest.MonkeyPatch) -> None:
    world = big_world(max_receive_seconds=0.01)
    world.context.load.counts.add(Count.BODY_BYTES, bodies.ROOM)
    assert (await world.post("/tokenize", {"prompt": "Hello there. " * 12_000})).status_code == 429
    assert (await world.post("/tokenize", {"prompt": "Hello there."})).status_code == 200
    assert world.context.load.counts.total(Count.BODY_BYTES) == bodies.ROOM


async def test_the_room_of_a_body_is_left_when_its_text_is_tokens_not_when_its_answer_ends() -> None:
    world = big_world()
    world.client.stalls_at = 1
    padded = {"prompt": "Hi", "max_tokens": 5, "metadata": {"a": "x" * 100_000}}
    task = asyncio.ensure_future(world.post("/v1/completions", padded))
    while not world.client.requests:
        await asyncio.sleep(0)
    assert world.context.load.counts.total(Count.BODY_BYTES) == 0
    task.cancel()


async def test_others_have_a_turn_between_two_large_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    world, happened, read = big_world(), list[str](), exchange.read

    def noting(*given: Any) -> Any:
        happened.append("decoded")
        return read(*given)

    async def tick() -> None:
        while True:
            happened.append("turn")
            await asyncio.sleep(0)

    monkeypatch.setattr(exchange, "read", noting)
    monkeypatch.setattr("chairlift.server.receive.check_values", lambda body: happened.append("counted"))
    ticking = asyncio.ensure_future(tick())
    large = {"prompt": "Hello there. " * 8_000}
    await asyncio.gather(*(world.post("/tokenize", large) for _ in range(4)))
    ticking.cancel()
    work = [index for index, what in enumerate(happened) if what != "turn"]
    assert len(work) == 8
    assert all("turn" in happened[one:next] for one, next in pairwise(work))
