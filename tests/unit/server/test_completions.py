from typing import Any

import pytest

from chairlift.core.attributes import Attributes
from fakes.http_world import HttpWorld
from fakes.sse import events

SAYS = "Hello world, hello there."


async def complete(world: HttpWorld, **body: Any) -> Any:
    response = await world.post("/v1/completions", {"prompt": "Hi", "max_tokens": 50, **body})
    assert response.status_code == 200, response.text
    return response.json()


async def chunks(world: HttpWorld, **body: Any) -> list[Any]:
    response = await world.post("/v1/completions", {"prompt": "Hi", "max_tokens": 50, "stream": True, **body})
    assert response.headers["content-type"].startswith("text/event-stream")
    *parts, done = events(response.text)
    assert done == "[DONE]"
    return parts


async def test_a_completion_has_every_field_of_openai_s_shape() -> None:
    world = HttpWorld(SAYS)
    world.client.num_cached = 1
    answer = await complete(world, prompt="Hello there")
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert answer["model"] == "small"
    assert answer["choices"] == [
        {"index": 0, "text": SAYS, "logprobs": None, "finish_reason": "stop", "stop_reason": None}
        | dict.fromkeys(("prompt_token_ids", "token_ids", "prompt_logprobs"))
    ]
    num_prompt, num_output = len(world.tokenizer.encode("Hello there")), len(world.answer)
    assert answer["usage"] == {
        "prompt_tokens": num_prompt,
        "total_tokens": num_prompt + num_output,
        "completion_tokens": num_output,
        "prompt_tokens_details": {"cached_tokens": 1},
    }


@pytest.mark.parametrize("fingerprint", [None, "5d7fd46a"])
async def test_the_engine_s_fingerprint_is_in_answers_and_chunks(fingerprint: str | None) -> None:
    world = HttpWorld(SAYS)
    world.client.fingerprint = fingerprint
    asked = {"messages": [{"role": "user", "content": "Hi"}]}
    chat = (await world.post("/v1/chat/completions", asked)).json()
    streamed = events((await world.post("/v1/chat/completions", asked | {"stream": True})).text)[:-1]
    said = [await complete(world), chat, *await chunks(world), *streamed]
    assert {answer["system_fingerprint"] for answer in said} == {fingerprint}


async def test_max_tokens_is_16_when_absent_and_less_where_there_is_less_room() -> None:
    world = HttpWorld()
    await world.post("/v1/completions", {"prompt": "Hi"})
    await world.post("/v1/completions", {"prompt": [5] * 398})
    assert [request.params.max_tokens for request in world.client.requests] == [16, 3]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("Hi", ["Hi"]), (["Hi", "Hello"], ["Hi", "Hello"]), ([5, 6, 7], [[5, 6, 7]]), ([[5], [6, 7]], [[5], [6, 7]])],
)
async def test_a_prompt_may_be_text_texts_ids_or_lists_of_ids(prompt: Any, expected: list[Any]) -> None:
    world = HttpWorld(SAYS)
    answer = await complete(world, prompt=prompt)
    ids = [world.tokenizer.encode(part) if isinstance(part, str) else part for part in expected]
    assert [request.prompt for request in world.client.requests] == ids
    assert [choice["index"] for choice in answer["choices"]] == list(range(len(expected)))


async def test_samples_of_several_prompts_are_numbered_prompt_by_prompt() -> None:
    world = HttpWorld()
    word = world.tokenizer.encode("Hello", False)
    world.client.script = lambda prompt, sample: [*word * (len(prompt) + sample), world.eos_id]
    answer = await complete(world, prompt=[[5], [6, 7]], n=2)
    assert [choice["text"] for choice in answer["choices"]] == ["Hello", "HelloHello", "HelloHello", "HelloHelloHello"]
    parts = await chunks(world, prompt=[[5], [6, 7]], n=2)
    texts = ["", "", "", ""]
    for part in parts:
        texts[part["choices"][0]["index"]] += part["choices"][0]["text"]
    assert texts == [choice["text"] for choice in answer["choices"]]


async def test_sampling_fields_reach_the_engine() -> None:
    world = HttpWorld()
    await complete(
        world, temperature=0.5, top_p=0.9, top_k=7, min_p=0.1, repetition_penalty=1.1, presence_penalty=0.2,
        frequency_penalty=0.3, logit_bias={"5": 2, "6": -1.5}, n=2, best_of=2, seed=9, stop="zz", stop_token_ids=[4],
        ignore_eos=False, min_tokens=1, priority=3, cache_salt="salt", user="me", deadline_s=2.5,
    )  # fmt: skip
    request = world.client.requests[0]
    params = request.params
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.5, 0.9, 7, 0.1)
    assert (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) == (1.1, 0.2, 0.3)
    assert params.logit_bias == {5: 2.0, 6: -1.5}
    assert (params.n, params.seed, params.stop, params.stop_token_ids, params.min_tokens) == (2, 9, ("zz",), (4,), 1)
    assert request.attributes == Attributes(priority=3, cache_salt="salt", user="me", deadline_s=2.5)


async def test_the_api_key_stands_for_the_user_where_the_body_names_none_and_is_not_shown() -> None:
    world = HttpWorld()
    for key in ("Bearer sk-one", "Bearer sk-two", "bearer sk-one", "Basic eDp5"):
        async with world.http() as http:
            await http.post("/v1/completions", json={"prompt": "Hi"}, headers={"Authorization": key})
    one, two, again, other = (request.attributes.user for request in world.client.requests)
    assert one == again != two
    assert other == ""
    assert "sk-one" not in one


async def test_top_k_of_minus_one_means_all() -> None:
    world = HttpWorld()
    await complete(world, top_k=-1)
    assert world.client.requests[0].params.top_k == 0


async def test_logprobs_are_parallel_lists_with_the_chosen_token_among_the_top() -> None:
    world = HttpWorld("Hello world")
    answer = await complete(world, logprobs=1)
    logprobs = answer["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["Hello", " world", "<|im_end|>"]
    assert logprobs["token_logprobs"] == [-token / 8 for token in world.answer]
    assert logprobs["top_logprobs"][0] == {"<|im_start|>": 0.0, "Hello": -world.answer[0] / 8}
    assert logprobs["text_offset"] == [0, 5, 11]


async def test_impossible_tokens_are_sent_as_minus_9999() -> None:
    world = HttpWorld("Hello")
    score = world.client.score
    world.client.score = lambda token, k: score(token, k)._replace(logprob=float("-inf"))  # type: ignore[method-assign]
    answer = await complete(world, logprobs=0)
    assert answer["choices"][0]["logprobs"]["token_logprobs"][0] == -9999.0


async def test_echo_puts_the_prompt_and_its_scores_first() -> None:
    world = HttpWorld("Hello world")
    answer = await complete(world, prompt="Paris is", echo=True, logprobs=0)
    choice = answer["choices"][0]
    assert choice["text"] == "Paris isHello world"
    prompt = world.tokenizer.encode("Paris is")
    assert choice["logprobs"]["token_logprobs"] == [None, *(-token / 8 for token in [*prompt[1:], *world.answer])]
    assert len(choice["logprobs"]["text_offset"]) == len(prompt) + len(world.answer)


async def test_echo_alone_scores_the_prompt_and_generates_nothing() -> None:
    world = HttpWorld()
    for stream in (False, True):
        if stream:
            [answer] = await chunks(world, prompt="Paris is", echo=True, logprobs=0, max_tokens=0)
        else:
            answer = await complete(world, prompt="Paris is", echo=True, logprobs=0, max_tokens=0)
            assert answer["usage"]["completion_tokens"] == 0
        choice = answer["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == ("Paris is", "length")
        assert len(choice["logprobs"]["tokens"]) == len(world.tokenizer.encode("Paris is"))


async def test_prompt_logprobs_and_token_ids_come_when_asked_for() -> None:
    world = HttpWorld("Hello")
    answer = await complete(world, prompt=[5, 6], prompt_logprobs=1, return_token_ids=True)
    choice = answer["choices"][0]
    assert choice["prompt_token_ids"] == [5, 6]
    assert choice["token_ids"] == world.answer
    top = {"logprob": 0.0, "rank": 1, "decoded_token": "<|im_start|>"}
    chosen = {"logprob": -0.75, "rank": 7, "decoded_token": world.tokenizer.piece(6)}
    assert choice["prompt_logprobs"] == [None, {"0": top, "6": chosen}]


async def test_a_stream_has_one_chunk_per_token_and_finishes_with_the_last() -> None:
    world = HttpWorld(SAYS)
    parts = await chunks(world)
    assert len(parts) == len(world.answer)
    assert "".join(part["choices"][0]["text"] for part in parts) == SAYS
    assert [part["choices"][0]["finish_reason"] for part in parts] == [None] * (len(parts) - 1) + ["stop"]
    assert {part["id"] for part in parts} == {parts[0]["id"]}
    assert all("usage" not in part for part in parts)


async def test_tokens_without_complete_text_ride_with_the_next_chunk() -> None:
    world = HttpWorld("é!")
    parts = await chunks(world, return_token_ids=True, logprobs=0)
    choices = [part["choices"][0] for part in parts]
    assert [choice["text"] for choice in choices] == ["é", "!", ""]
    assert [choice["token_ids"] for choice in choices] == [world.answer[:2], world.answer[2:3], world.answer[3:]]
    assert len(choices[0]["logprobs"]["tokens"]) == 2
    assert choices[0]["logprobs"]["tokens"][0] == "bytes:\\xc3"
    assert [at for choice in choices for at in choice["logprobs"]["text_offset"]] == [0, 0, 1, 2]
    assert choices[0]["prompt_token_ids"] == world.tokenizer.encode("Hi")
    assert "prompt_token_ids" not in choices[1]


async def test_a_token_that_has_no_text_still_has_its_chunk() -> None:
    world = HttpWorld("Hello world")
    world.answer = [world.eos_id, *world.answer]
    parts = await chunks(world, ignore_eos=True)
    assert [part["choices"][0]["text"] for part in parts] == ["", "Hello", " world", ""]


async def test_usage_comes_in_one_more_chunk_when_asked_for() -> None:
    world = HttpWorld(SAYS)
    *parts, last = await chunks(world, stream_options={"include_usage": True})
    assert all(part["usage"] is None for part in parts)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == len(world.answer)


async def test_continuous_usage_counts_up() -> None:
    world = HttpWorld(SAYS)
    parts = await chunks(world, stream_options={"include_usage": True, "continuous_usage_stats": True})
    counts = [part["usage"]["completion_tokens"] for part in parts if part["choices"]]
    assert counts == list(range(1, len(world.answer) + 1))


async def test_echo_in_a_stream_comes_with_the_first_token() -> None:
    parts = await chunks(HttpWorld("Hello world"), prompt="Paris", echo=True)
    assert [part["choices"][0]["text"] for part in parts] == ["ParisHello", " world", ""]


async def test_stop_strings_are_left_out_unless_asked_for() -> None:
    answer = await complete(HttpWorld(SAYS), stop=["world", "zz"])
    choice = answer["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("Hello ", "stop", "world")
    answer = await complete(HttpWorld(SAYS), stop=["world"], include_stop_str_in_output=True)
    assert answer["choices"][0]["text"] == "Hello world"


async def test_special_tokens_are_shown_when_asked_for() -> None:
    answer = await complete(HttpWorld("Hello"), skip_special_tokens=False, ignore_eos=True)
    assert answer["choices"][0]["text"] == "Hello<|im_end|>"


@pytest.mark.parametrize("stream", [False, True])
async def test_fields_without_effect_are_named_in_a_header(stream: bool) -> None:
    world = HttpWorld()
    plain = await world.post("/v1/completions", {"prompt": "Hi", "stream": stream})
    told = await world.post("/v1/completions", {"prompt": "Hi", "stream": stream, "temprature": 1, "a,b\n\u00e9": 2})
    wrong = await world.post("/v1/completions", {"prompt": "Hi", "stream": stream, "temprature": 1, "n": 0})
    assert "x-chairlift-ignored" not in plain.headers
    assert told.status_code == 200
    assert told.headers["x-chairlift-ignored"] == "temprature,a?b??"
    assert (wrong.status_code, wrong.headers["x-chairlift-ignored"]) == (400, "temprature")


async def test_of_very_many_fields_without_effect_some_are_named() -> None:
    told = await HttpWorld().post("/v1/completions", {"prompt": "Hi"} | {f"f{i}": 1 for i in range(1000)})
    names = told.headers["x-chairlift-ignored"].split(",")
    assert (len(names), names[0], names[-1]) == (21, "f0", "and-980-more")


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}),
        ("/v1/responses", {"input": "Hi"}),
    ],
)
async def test_fields_that_turn_out_later_to_have_no_effect_are_added(path: str, asked: dict[str, Any]) -> None:
    tools = [{"type": "web_search_20250305", "name": "web_search"}] * 3
    for num_unknown, last in ((2, "tools[2]"), (18, "and-1-more"), (30, "and-13-more")):
        body = asked | {"tools": tools} | {f"f{i}": 1 for i in range(num_unknown)}
        response = await HttpWorld().post(path, body)
        assert response.status_code == 200, response.text
        names = response.headers["x-chairlift-ignored"].split(",")
        assert (names[0], names[-1], len(names)) == ("f0", last, min(num_unknown + 3, 21))


async def test_a_shape_that_needs_more_than_the_default_is_refused() -> None:
    body = {"prompt": "Hi", "guided_choice": ["a long choice of words that takes more tokens than there are"]}
    response = await HttpWorld(SAYS).post("/v1/completions", body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "max_tokens")
    assert "16 is too few" in response.json()["error"]["message"]
    assert (await HttpWorld(SAYS).post("/v1/completions", body | {"max_tokens": 60})).status_code == 200
