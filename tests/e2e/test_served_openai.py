"""The official OpenAI client against the whole server: HTTP, engine process, scheduler, a real (tiny) model."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from fakes.patience import HANG_S
from fakes.served import Served

MODEL = "tiny"
QUESTION = [{"role": "user", "content": "Where is Paris?"}]


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=HANG_S) as client:
        yield client


def test_the_model_is_listed_under_its_folder_s_name(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def test_a_completion_has_the_tokens_asked_for_and_says_so(client: openai.OpenAI) -> None:
    done = client.completions.create(model=MODEL, prompt="Hello", max_tokens=7, extra_body={"ignore_eos": True})
    assert done.choices[0].finish_reason == "length"
    assert done.usage is not None
    assert done.usage.completion_tokens == 7
    assert done.usage.total_tokens == done.usage.prompt_tokens + 7


def test_token_ids_and_text_are_the_same_prompt(client: openai.OpenAI, server: Served) -> None:
    ids = httpx.post(f"{server.url}/tokenize", json={"prompt": "Hello world"}, timeout=HANG_S).json()["tokens"]
    answers = client.completions.create(model=MODEL, prompt=[ids, ids], max_tokens=6, temperature=0).choices
    (text,) = client.completions.create(model=MODEL, prompt="Hello world", max_tokens=6, temperature=0).choices
    assert [answer.text for answer in answers] == [text.text, text.text]


def test_a_stream_joined_is_the_full_answer_and_ends_with_the_usage(client: openai.OpenAI) -> None:
    asked = {"model": MODEL, "messages": QUESTION, "max_completion_tokens": 20, "temperature": 0}
    full = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == full.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == full.choices[0].finish_reason
    usage, expected = chunks[-1].usage, full.usage
    assert usage is not None and expected is not None and chunks[-1].choices == []
    assert (usage.prompt_tokens, usage.completion_tokens) == (expected.prompt_tokens, expected.completion_tokens)


def test_a_seed_repeats_each_of_its_samples_in_any_company(client: openai.OpenAI) -> None:
    def ask(seed: int) -> list[str]:
        answer = client.completions.create(
            model=MODEL, prompt="The quick brown", max_tokens=24, n=3, seed=seed, temperature=1.5
        )
        return [choice.text for choice in answer.choices]

    alone = ask(5)
    assert len(set(alone)) == 3
    with ThreadPoolExecutor(4) as threads:
        in_company = list(threads.map(ask, [5, 6, 5, 7]))
    assert in_company[0] == in_company[2] == alone
    assert in_company[1] != alone


def test_log_probabilities_are_of_the_chosen_tokens(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt="Hello", max_tokens=4, temperature=0, logprobs=3, extra_body={"ignore_eos": True}
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.token_logprobs is not None and logprobs.top_logprobs is not None
    assert len(logprobs.token_logprobs) == 4
    for chosen, top in zip(logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
        assert chosen < 0 and chosen == pytest.approx(max(top.values()))

    chat = client.chat.completions.create(
        model=MODEL, messages=QUESTION, max_tokens=3, logprobs=True, top_logprobs=2, extra_body={"ignore_eos": True}
    )
    content = chat.choices[0].logprobs
    assert content is not None and content.content is not None
    assert [len(token.top_logprobs) for token in content.content] == [2, 2, 2]


def test_echo_with_logprobs_scores_the_prompt(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="Hello world", max_tokens=1, echo=True, logprobs=0)
    logprobs = answer.choices[0].logprobs
    assert answer.choices[0].text.startswith("Hello world")
    assert logprobs is not None and logprobs.token_logprobs is not None and answer.usage is not None
    first, *others = logprobs.token_logprobs
    assert first is None
    assert len(others) == answer.usage.prompt_tokens
    assert all(score < 0 for score in others)


def test_a_stop_string_cuts_the_text_and_is_left_out(client: openai.OpenAI) -> None:
    asked = {"model": MODEL, "prompt": "Hello there", "max_tokens": 20, "temperature": 0}
    whole = client.completions.create(**asked).choices[0].text
    stop = whole[8:10]
    cut = client.completions.create(**asked, stop=[stop]).choices[0]
    assert cut.text == whole[: whole.index(stop)]
    assert cut.finish_reason == "stop"
    streamed = client.completions.create(**asked, stop=[stop], stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == cut.text


def test_a_prompt_asked_again_is_found_in_the_cache(client: openai.OpenAI) -> None:
    prompt = list(range(10, 110))
    for is_again in (False, True):
        usage = client.completions.create(model=MODEL, prompt=prompt, max_tokens=1).usage
        assert usage is not None and usage.prompt_tokens_details is not None
        assert usage.prompt_tokens_details.cached_tokens == (96 if is_again else 0)


def test_mistakes_become_the_client_s_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(model=MODEL, prompt="Hello", temperature=-1)
    with pytest.raises(openai.NotFoundError, match="other"):
        client.chat.completions.create(model="other", messages=QUESTION)
    with pytest.raises(openai.BadRequestError, match="tools"):
        client.chat.completions.create(
            model=MODEL, messages=QUESTION, tools=[{"type": "function", "function": {"name": "f f"}}]
        )


def test_thirty_two_requests_at_once_are_all_answered(client: openai.OpenAI) -> None:
    def ask(index: int) -> int:
        answer = client.completions.create(
            model=MODEL, prompt=[index + 3] * (index + 1), max_tokens=index + 1, extra_body={"ignore_eos": True}
        )
        assert answer.usage is not None
        return answer.usage.completion_tokens

    with ThreadPoolExecutor(32) as threads:
        assert list(threads.map(ask, range(32))) == list(range(1, 33))
