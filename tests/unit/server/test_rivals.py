"""Answers that are the best of several: `best_of` and beam search over HTTP."""

from typing import Any

import pytest

from fakes.http_world import HttpWorld
from fakes.sse import events


async def ask(world: HttpWorld, path: str = "/v1/completions", **body: Any) -> Any:
    asked = {"prompt": "Hi"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "Hi"}]}
    response = await world.post(path, {**asked, "max_tokens": 10, **body})
    assert response.status_code == 200, response.text
    return response.json()


def counting(world: HttpWorld) -> HttpWorld:
    """Sample i says token 40 - i three times: the later, the likelier."""
    world.client.script = lambda prompt, sample: [40 - sample] * 3
    return world


async def test_best_of_gives_the_likeliest_and_counts_the_tokens_of_all() -> None:
    answer = await ask(counting(HttpWorld()), n=2, best_of=5, return_token_ids=True)
    assert [choice["token_ids"] for choice in answer["choices"]] == [[36] * 3, [37] * 3]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert answer["choices"][0]["logprobs"] is None
    assert answer["usage"]["completion_tokens"] == 15


async def test_best_of_shows_the_scores_of_the_chosen_when_asked() -> None:
    answer = await ask(counting(HttpWorld()), best_of=3, logprobs=1)
    assert answer["choices"][0]["logprobs"]["token_logprobs"] == [-38 / 8] * 3


async def test_best_of_chooses_for_each_prompt() -> None:
    world = HttpWorld()
    world.client.script = lambda prompt, sample: [40 + (sample - len(prompt)) ** 2] * 2
    answer = await ask(world, prompt=[[5], [6, 7]], best_of=4, return_token_ids=True)
    assert [choice["token_ids"] for choice in answer["choices"]] == [[40, 40], [40, 40]]


async def test_best_of_n_is_n() -> None:
    world = counting(HttpWorld())
    answer = await ask(world, n=2, best_of=2, return_token_ids=True)
    assert [choice["token_ids"] for choice in answer["choices"]] == [[40] * 3, [39] * 3]
    assert world.client.requests[0].params.best_of == 0


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_beam_search_reaches_the_engine_as_such(path: str) -> None:
    world = HttpWorld()
    answer = await ask(world, path, use_beam_search=True, beam_width=4, n=2, length_penalty=0.5, temperature=0.7)
    params = world.client.requests[0].params
    assert (params.beam_width, params.n, params.best_of, params.length_penalty) == (4, 2, 0, 0.5)
    assert len(answer["choices"]) == 2


@pytest.mark.parametrize(("given", "width"), [({"n": 3}, 3), ({"n": 2, "best_of": 5}, 5), ({}, 1)])
async def test_the_width_of_a_search_is_best_of_or_n_when_absent(given: dict[str, int], width: int) -> None:
    world = HttpWorld()
    await ask(world, use_beam_search=True, **given)
    assert world.client.requests[0].params.beam_width == width


async def test_the_model_s_own_penalty_does_not_keep_it_from_a_search() -> None:
    world = HttpWorld(defaults={"repetition_penalty": 1.1, "temperature": 0.6})
    await ask(world)
    await ask(world, use_beam_search=True, beam_width=2)
    assert [request.params.repetition_penalty for request in world.client.requests] == [1.1, 1.0]


async def test_a_stream_of_a_search_brings_its_answers() -> None:
    world = HttpWorld("Hello world")
    body = {"prompt": "Hi", "max_tokens": 10, "stream": True, "use_beam_search": True, "beam_width": 2, "n": 2}
    response = await world.post("/v1/completions", body)
    *parts, done = events(response.text)
    texts = ["", ""]
    for part in parts:
        texts[part["choices"][0]["index"]] += part["choices"][0]["text"]
    assert texts == ["Hello world"] * 2
    assert done == "[DONE]"


async def test_a_search_that_the_engine_refuses_names_the_field() -> None:
    world = HttpWorld()
    world.client.refusal = ("beam_width", "too much")
    response = await world.post("/v1/completions", {"prompt": "Hi", "use_beam_search": True, "beam_width": 2})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "beam_width"
