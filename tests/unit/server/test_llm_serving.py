"""The llm-serving answers byte for byte, as its specification writes them down."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.live.adapters.registry import AdapterRegistry
from chairlift.server.answer import Delta
from chairlift.server.llm_serving.generate import LineEncoder
from chairlift.server.llm_serving.request import Parameters
from fakes.http_world import HttpWorld, with_compat
from fakes.patience import until

HELLO = '{"id": 308, "logprob": 77.0, "special": false, "text": "Hello"}'
WORLD = '{"id": 323, "logprob": 80.75, "special": false, "text": " world"}'
END = '{"id": 1, "logprob": 0.25, "special": true, "text": ""}'


async def ask(world: HttpWorld, path: str, inputs: object = "Hi", **parameters: Any) -> httpx.Response:
    response = await world.post(path, {"inputs": inputs, "parameters": parameters})
    assert response.status_code == 200, response.text
    return response


def lines(response: httpx.Response) -> list[Any]:
    assert response.text.endswith("\n")
    return [json.loads(line)["data"][0] for line in response.text.splitlines()]


async def test_the_full_answer_to_the_byte() -> None:
    response = await ask(HttpWorld("Hello world"), "/models/llama2/generate")
    assert response.text == (
        '{"generated_text": "Hello world", "finish_reason": "eos", "generated_tokens": 3, '
        f'"prefill": [{HELLO}], "seed": 0, "tokens": [{HELLO}, {WORLD}, {END}], '
        f'"top_tokens": [[{HELLO}]], "details": null}}\n'
    )
    assert "content-type" not in response.headers
    assert "content-length" not in response.headers


async def test_the_stream_to_the_byte() -> None:
    response = await ask(HttpWorld("Hello world"), "/models/llama2/generate_stream", max_new_tokens=2)
    head = '{"event": "message", "retry": 30000, "data": [{"details": null, "generated_text": '
    assert response.text == (
        f'{head}"Hello", "tokens": {HELLO}, "top_tokens": [{HELLO}]}}]}}\n'
        f'{head}" world", "tokens": {WORLD}, "top_tokens": [{WORLD}]}}]}}\n'
        f'{head}"Hello world", "finish_reason": "length", "generated_tokens": 2, "prefill": [{HELLO}], "seed": 0, '
        f'"tokens": [{HELLO}, {WORLD}], "top_tokens": [[{HELLO}]]}}]}}\n'
    )
    headers = {name: response.headers[name] for name in ("content-type", "cache-control", "x-accel-buffering")}
    assert headers == {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
    }
    assert response.headers["connection"] == "keep-alive"


async def test_data_is_an_object_where_that_is_asked_for() -> None:
    """As newer clients read it: ["data"]["generated_text"]."""
    route, world = "/models/llama2/generate_stream", HttpWorld("Hello world", llm_serving_data="object")
    as_list, as_object = await ask(HttpWorld("Hello world"), route), await ask(world, route)
    assert [json.loads(line)["data"] for line in as_object.text.splitlines()] == lines(as_list)
    assert as_object.text.startswith('{"event": "message", "retry": 30000, "data": {"details": null, "generated_text"')
    assert (await ask(world, route, return_protocol="plain")).text.startswith('data:{"details": null')


async def test_any_other_protocol_is_plain_lines_with_data_before_them() -> None:
    world = HttpWorld("Hello world")
    response = await ask(world, "/models/llama2/generate_stream", max_new_tokens=1, return_protocol="plain")
    assert response.text == (
        f'data:{{"details": null, "generated_text": "Hello", "tokens": {HELLO}, "top_tokens": [{HELLO}]}}\n'
        'data:{"generated_text": "Hello", "finish_reason": "length", "generated_tokens": 1, '
        f'"prefill": [{HELLO}], "seed": 0, "tokens": [{HELLO}], "top_tokens": [[{HELLO}]], "details": null}}\n'
    )
    assert "content-type" not in response.headers


async def test_without_return_full_text_there_is_no_summary() -> None:
    world = HttpWorld("Hello world")
    response = await ask(world, "/models/llama2/generate_stream", return_full_text="False")
    assert [line["generated_text"] for line in lines(response)] == ["Hello", " world", ""]


async def test_text_is_not_escaped() -> None:
    response = await ask(HttpWorld('é "x"\n'), "/models/llama2/generate")
    assert '"generated_text": "é \\"x\\"\\n"' in response.text


async def test_every_token_has_its_line_and_held_back_bytes_are_not_lost() -> None:
    world = HttpWorld("é")
    response = await ask(world, "/models/llama2/generate_stream")
    *tokens, summary = lines(response)
    assert [line["tokens"]["id"] for line in tokens] == world.answer
    assert [(line["generated_text"], line["tokens"]["special"]) for line in tokens] == [
        ("", True),
        ("é", False),
        ("", True),
    ]
    assert summary["generated_text"] == "é"


def test_a_broken_character_comes_with_the_next_token_and_at_the_end_alone() -> None:
    encoder = LineEncoder(Parameters(), True, "name")
    lines = [encoder.add(0, Delta(0, 5, text)) for text in ("a", "b\ufffd", "\ufffd", "c")]
    lines.append(encoder.add(0, Delta(0, 5, "\ufffd", finish="length")))
    texts = [json.loads(line)["data"][0]["generated_text"] for line in lines]
    assert texts == ["a", "", "", "b\ufffd\ufffdc", "\ufffd"]
    assert json.loads(encoder.end())["data"][0]["generated_text"] == "".join(texts)


async def test_a_text_begins_anew_where_its_tokenizer_drops_the_first_space(monkeypatch: pytest.MonkeyPatch) -> None:
    world = HttpWorld(" world")
    monkeypatch.setattr(world.tokenizer.spelling, "drops_first_space", True)
    text = lines(await ask(world, "/models/llama2/generate_stream"))[-1]["generated_text"]
    other = (await world.post("/v1/completions", {"prompt": "Hi"})).json()["choices"][0]["text"]
    assert (text, other) == ("world", " world")


@pytest.mark.parametrize(("stream", "count"), [("True", 4), (True, 4), ("no", 1), (0, 1)])
async def test_the_bare_route_follows_the_stream_field(stream: object, count: int) -> None:
    world = HttpWorld("Hello world")
    response = await world.post("/models/llama2", {"inputs": "Hi", "stream": stream})
    assert len(response.text.splitlines()) == count


async def test_the_other_routes_ignore_the_stream_field() -> None:
    world = HttpWorld("Hello world")
    response = await world.post("/models/llama2/generate", {"inputs": "Hi", "stream": True})
    assert "generated_text" in response.json()
    response = await world.post("/models/llama2/generate_stream", {"inputs": "Hi", "stream": False})
    assert len(response.text.splitlines()) == 4


@pytest.mark.parametrize("name", ["llama2", "internlm", "meta-llama/Llama-2-7b", "%E6%A8%A1", "generate"])
async def test_the_model_s_name_may_be_anything(name: str) -> None:
    response = await ask(HttpWorld("Hello"), f"/models/{name}/generate")
    assert response.json()["generated_text"] == "Hello"


async def test_the_name_of_an_adapter_is_answered_with_the_adapter(tmp_path: Path) -> None:
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "adapter_config.json").touch()
    world = HttpWorld("Hello", adapters=AdapterRegistry(None, tmp_path, "small", lambda path: None))
    for path in ("sql/generate", "sql/generate_stream", "sql", "small/generate", "llama2/generate"):
        await ask(world, f"/models/{path}")
    adapters = [request.adapter for request in world.client.requests]
    assert [adapter and adapter.name for adapter in adapters] == ["sql", "sql", "sql", None, None]


async def test_others_run_while_an_adapter_is_read_and_a_client_that_left_has_none_read(tmp_path: Path) -> None:
    def check(path: Path) -> None:
        read.append(path.name)
        if not may_end.wait(5.0):
            raise InvalidConfig("no other has run")

    read, may_end = list[str](), threading.Event()
    for name in ("sql", "left"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").touch()
    world = HttpWorld("Hello", adapters=AdapterRegistry(None, tmp_path, "small", check))
    asked = asyncio.ensure_future(ask(world, "/models/sql/generate"))
    await until(lambda: read)
    async with world.http() as http:
        headers = {"X-Deadline-Ms": "1"}
        late = asyncio.ensure_future(http.post("/models/left/generate", json={"inputs": "Hi"}, headers=headers))
        await asyncio.sleep(0.01)
        may_end.set()
        assert ((await asked).status_code, (await late).status_code) == (200, 504)
    assert read == ["sql"]


async def test_a_broken_adapter_is_named_and_not_the_prompt(tmp_path: Path) -> None:
    def refuse(path: Path) -> None:
        raise InvalidConfig(f"{path.name} has no weights")

    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "adapter_config.json").touch()
    world = HttpWorld("Hello", adapters=AdapterRegistry(None, tmp_path, "small", refuse))
    response = await world.post("/models/sql/generate", {"inputs": "Hi"})
    assert (response.status_code, response.json()["detail"]) == (400, "model: sql has no weights")
    world.client.refusal = ("model", "its file is gone")  # as the engine says once it loads it
    assert (await ask(world, "/models/llama2/generate")).json()["finish_reason"] == "predict_failed"


@pytest.mark.parametrize("path", ["llama2/generate_streams", "llama2/generate_stream/", "a/b/generated"])
async def test_a_route_that_is_mistyped_is_not_taken_for_a_name(path: str) -> None:
    response = await HttpWorld("Hello").post(f"/models/{path}", {"inputs": "Hi"})
    assert response.status_code == 404 and "/models/NAME/generate_stream" in response.json()["detail"]


async def test_the_tokens_sampled_are_asked_for_with_their_logit() -> None:
    world = HttpWorld()
    await ask(world, "/models/llama2/generate", do_sample="False", max_new_tokens="9", top_k="5", top_p="0.8", seed=3)
    params = world.client.requests[0].params
    assert (params.temperature, params.max_tokens, params.top_k, params.top_p, params.seed) == (0.0, 9, 5, 0.8, 3)
    assert params.logprobs == 0


async def test_a_stop_string_ends_the_answer_as_eos() -> None:
    response = await ask(HttpWorld("Hello world, hello"), "/models/llama2/generate", stop=["wor"])
    body = response.json()
    assert (body["generated_text"], body["finish_reason"], body["generated_tokens"]) == ("Hello ", "eos", 2)


async def test_the_prompt_template_wraps_the_inputs() -> None:
    world = with_compat(prompt_template="<s><|User|>:{}<eoh>\n<|Bot|>:")
    await ask(world, "/models/internlm/generate", "a{}b")
    prompt = world.tokenizer.decode(world.client.requests[0].prompt, skip_special=False)
    assert prompt == "<s><|User|>:a{}b<eoh>\n<|Bot|>:"


async def test_a_prompt_that_holds_the_pad_id_is_served() -> None:
    body = (await ask(HttpWorld("Hello"), "/models/llama2/generate", "<|im_start|>Hi")).json()
    assert body["finish_reason"] == "eos"


OUT_OF_RANGE = ("prompt_out_of_range", "Error202: prompt out of range", 0, 0)
EMPTY = ("prompt_token_ids_empty", "Error203: prompt token empty", 0, 0)


def check_error(body: Any, expected: tuple[str, str, int, int]) -> None:
    finish, message, token_id, num_tokens = expected
    token = {"id": token_id, "logprob": 0.0, "special": False, "text": message}
    assert body == {
        "generated_text": message,
        "finish_reason": finish,
        "generated_tokens": num_tokens,
        "prefill": [token],
        "seed": 0,
        "tokens": [token],
        "top_tokens": [[token]],
        "details": None,
    }


@pytest.mark.parametrize(
    ("inputs", "max_new_tokens", "expected"),
    [
        ("", 5, EMPTY),
        ("Hi", 400, OUT_OF_RANGE),
        ("Hi", 10**30, OUT_OF_RANGE),
        ("Hello " * 300, 5, OUT_OF_RANGE),
    ],
)
async def test_what_cannot_be_served_is_an_error_text_under_200(
    inputs: str, max_new_tokens: int, expected: tuple[str, str, int, int]
) -> None:
    world = HttpWorld()
    async with world.http() as http:
        for path in ("/models/llama2/generate", "/models/llama2/generate_stream"):
            body = json.dumps({"inputs": inputs, "parameters": {"max_new_tokens": max_new_tokens}})
            response = await http.post(path, content=body)
            assert response.status_code == 200
            if path.endswith("stream"):
                line, summary = lines(response)
                assert line["generated_text"] == line["tokens"]["text"] == expected[1]
                check_error(summary, expected)
            else:
                check_error(response.json(), expected)
    assert world.client.requests == []


async def test_the_length_limit_of_the_configuration_is_not_reached() -> None:
    world = with_compat(seq_length=50)
    num_prompt = len(world.tokenizer.encode("Hi"))
    refused = await ask(world, "/models/llama2/generate", max_new_tokens=50 - num_prompt)
    check_error(refused.json(), OUT_OF_RANGE)
    served = await ask(world, "/models/llama2/generate", max_new_tokens=49 - num_prompt)
    assert served.json()["finish_reason"] == "eos"


@pytest.mark.parametrize("kind", ["fails_at", "dies_at"])
async def test_a_failure_in_the_middle_ends_with_error304(kind: str) -> None:
    world = HttpWorld()
    setattr(world.client, kind, 2)
    message = "error304: generation task stop abnormally!, please retry!"
    check_error((await ask(world, "/models/llama2/generate")).json(), ("predict_failed", message, -1, 2))
    first, second, line, summary = lines(await ask(world, "/models/llama2/generate_stream"))
    assert [first["tokens"]["id"], second["tokens"]["id"]] == world.answer[:2]
    assert line["tokens"] == {"id": -1, "logprob": 0.0, "special": False, "text": message}
    check_error(summary, ("predict_failed", message, -1, 2))


async def test_an_engine_that_is_not_there_is_error304_too() -> None:
    world = HttpWorld()
    world.client.is_ready = False
    body = (await ask(world, "/models/llama2/generate")).json()
    assert (body["finish_reason"], body["generated_tokens"]) == ("predict_failed", 0)


async def test_a_bad_body_is_a_422_with_pydantic_s_detail() -> None:
    response = await HttpWorld().post("/models/llama2", {"inputs": "a", "parameters": {"top_k": "5.0"}})
    assert response.status_code == 422
    assert response.text == (
        '{"detail":[{"loc":["body","parameters","top_k"],'
        '"msg":"value is not a valid integer","type":"type_error.integer"}]}'
    )


@pytest.mark.parametrize("path", ["/models/llama2/generate", "/models/llama2/generate_stream"])
async def test_the_logprob_is_a_log_probability_where_that_is_asked_for(path: str) -> None:
    response = await ask(HttpWorld("Hello world", llm_serving_logprob="logprob"), path)
    assert HELLO.replace("77.0", "-38.5") in response.text
    assert HELLO not in response.text


async def test_parameters_without_effect_are_named_in_a_header() -> None:
    told = await HttpWorld().post("/models/small/generate", {"inputs": "Hi", "parameters": {"watermark": True}})
    assert told.headers["x-chairlift-ignored"] == "parameters.watermark"


async def test_pairs_are_an_object_whatever_their_names_are() -> None:
    told = await HttpWorld().post("/models/small/generate", [["inputs", "Hi"], [1, 2]])
    assert (told.status_code, told.headers["x-chairlift-ignored"]) == (200, "1")
