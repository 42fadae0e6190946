"""The official client against the server on a real port."""

from collections.abc import Iterator

import openai
import pytest

from fakes.http_world import HttpWorld

SAYS = "Hello world, hello there."


@pytest.fixture
def world() -> HttpWorld:
    return HttpWorld(SAYS)


@pytest.fixture
def client(world: HttpWorld) -> Iterator[openai.OpenAI]:
    with world.on_a_port() as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_it_lists_the_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["small", "org/small"]
    assert client.models.retrieve("org/small").id == "org/small"


def test_it_completes_text(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="small", prompt="Hi", max_tokens=50, logprobs=2)
    assert answer.choices[0].text == SAYS
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].logprobs is not None
    assert len(answer.choices[0].logprobs.tokens or []) == answer.usage.completion_tokens  # type: ignore[union-attr]


def test_it_streams_text(client: openai.OpenAI) -> None:
    stream = client.completions.create(model="small", prompt="Hi", max_tokens=50, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == SAYS


def test_it_chats(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="small", messages=[{"role": "user", "content": "Hi"}], logprobs=True, top_logprobs=1, n=2
    )
    assert [choice.message.content for choice in answer.choices] == [SAYS, SAYS]
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].logprobs.content[0].token == "Hello"  # type: ignore[union-attr,index]


def test_it_streams_a_chat_with_usage(client: openai.OpenAI, world: HttpWorld) -> None:
    stream = client.chat.completions.create(
        model="small",
        messages=[{"role": "user", "content": "Hi"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    *chunks, last = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == SAYS
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert last.usage is not None
    assert last.usage.completion_tokens == len(world.answer)


def test_extensions_travel_in_the_extra_body(client: openai.OpenAI, world: HttpWorld) -> None:
    client.completions.create(model="small", prompt="Hi", extra_body={"top_k": 5, "ignore_eos": True})
    assert world.client.requests[0].params.top_k == 5
    assert world.client.requests[0].params.ignore_eos


def test_errors_become_the_client_s_exceptions(client: openai.OpenAI, world: HttpWorld) -> None:
    with pytest.raises(openai.NotFoundError, match="not served here"):
        client.completions.create(model="gpt-4", prompt="Hi")
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="small", prompt="Hi", temperature=-1)
    assert caught.value.param == "temperature"
    world.client.is_ready = False
    with pytest.raises(openai.InternalServerError, match="not ready") as gone:
        client.completions.create(model="small", prompt="Hi")
    assert gone.value.status_code == 503


def test_a_failure_in_the_middle_of_a_stream_is_raised(client: openai.OpenAI, world: HttpWorld) -> None:
    world.client.fails_at = 3
    stream = client.completions.create(model="small", prompt="Hi", stream=True)
    texts = []
    with pytest.raises(openai.APIError, match="the runner failed"):
        texts.extend(chunk.choices[0].text for chunk in stream)
    world.client.fails_at = None
    assert client.completions.create(model="small", prompt="Hi").choices[0].text == SAYS
