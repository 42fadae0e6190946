"""Beam search, `best_of`, cached prefixes and priorities, asked of the whole server with a real (tiny) model."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from fakes.patience import HANG_S, wait_until
from fakes.served import Served
from fakes.sse import events

pytestmark = pytest.mark.slow


def ask(server: Served, path: str = "completions", **body: Any) -> Any:
    response = httpx.post(f"{server.url}/v1/{path}", json={"max_tokens": 12, **body}, timeout=HANG_S)
    assert response.status_code == 200, response.text
    return response.json()


def texts(answer: Any) -> list[str]:
    return [choice["text"] for choice in answer["choices"]]


def test_a_search_gives_its_best_answers_in_any_company(server: Served) -> None:
    search = {"prompt": "The quick brown", "use_beam_search": True, "beam_width": 4, "n": 3, "return_token_ids": True}
    alone = ask(server, **search)
    answers = [choice["token_ids"] for choice in alone["choices"]]
    assert len({tuple(tokens) for tokens in answers}) == 3
    assert alone["usage"]["completion_tokens"] == sum(map(len, answers))
    with ThreadPoolExecutor(8) as pool:
        others = [pool.submit(ask, server, prompt=f"Hello {i}", n=2, temperature=1.0) for i in range(6)]
        again = [pool.submit(ask, server, **search) for _ in range(2)]
        assert [texts(future.result()) for future in again] == [texts(alone)] * 2
        assert all(len(future.result()["choices"]) == 2 for future in others)


def test_a_search_of_width_one_is_the_greedy_answer(server: Served) -> None:
    greedy = ask(server, prompt="Hello", temperature=0)
    assert texts(ask(server, prompt="Hello", use_beam_search=True)) == texts(greedy)


def test_a_streamed_search_is_the_full_answer(server: Served) -> None:
    body = {"prompt": "Paris", "use_beam_search": True, "beam_width": 3, "n": 2, "max_tokens": 12}
    response = httpx.post(f"{server.url}/v1/completions", json=body | {"stream": True}, timeout=HANG_S)
    *parts, done = events(response.text)
    joined = ["", ""]
    for part in parts:
        joined[part["choices"][0]["index"]] += part["choices"][0]["text"]
    assert joined == texts(ask(server, **body))
    assert done == "[DONE]"


def test_a_chat_may_be_searched(server: Served) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    answer = ask(server, "chat/completions", messages=messages, use_beam_search=True, beam_width=3, n=2)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]


def test_a_search_larger_than_the_pool_or_the_running_set_names_the_field(server: Served) -> None:
    for body in ({"beam_width": 9}, {"beam_width": 8, "max_tokens": 90_000}):
        asked = {"prompt": "Hello", "use_beam_search": True} | body
        response = httpx.post(f"{server.url}/v1/completions", json=asked, timeout=HANG_S)
        assert response.status_code == 400
        assert response.json()["error"]["param"] in ("beam_width", "max_tokens")


def test_best_of_gives_the_likeliest_of_the_samples_it_counts(server: Served) -> None:
    asked = {"prompt": "Hello", "temperature": 1.4, "seed": 5, "ignore_eos": True, "logprobs": 0}
    six = ask(server, n=6, **asked)["choices"]
    best = ask(server, n=2, best_of=6, **asked)
    ranked = sorted(six, key=lambda choice: -sum(choice["logprobs"]["token_logprobs"]))
    assert texts(best) == [choice["text"] for choice in ranked[:2]]
    assert best["usage"]["completion_tokens"] == 6 * 12


def cached(answer: Any) -> int:
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_a_prompt_that_begins_like_an_earlier_one_starts_after_it(server: Served) -> None:
    prompt = [7, 8, 9, 10] * 12
    first = ask(server, prompt=prompt, temperature=0)
    assert cached(first) == 0
    again = ask(server, prompt=prompt, temperature=0)
    assert (cached(again), texts(again)) == (32, texts(first))  # whole blocks of 16; the last token is always computed
    assert cached(ask(server, prompt=[*prompt[:20], 11, 12, 13] * 2)) == 16


def test_tenants_under_different_salts_never_share(server: Served) -> None:
    prompt = [20, 21, 22, 23] * 12
    answers = [ask(server, prompt=prompt, temperature=0, cache_salt=salt) for salt in ("ann", "bob", "ann", "")]
    assert [cached(answer) for answer in answers] == [0, 0, 32, 0]
    assert len({texts(answer)[0] for answer in answers}) == 1


@pytest.mark.nightly
def test_a_lower_priority_number_is_served_first(one_running: Served) -> None:
    """One request runs until the others have come; they are admitted by priority, not by arrival."""
    order: list[int] = []

    def wait_for(priority: int) -> None:
        ask(one_running, prompt="Hello", priority=priority, ignore_eos=True, max_tokens=40)
        order.append(priority)

    body = {"prompt": "Hello", "ignore_eos": True, "max_tokens": 20_000, "stream": True}
    with ThreadPoolExecutor(4) as pool:
        with httpx.stream("POST", f"{one_running.url}/v1/completions", json=body, timeout=HANG_S) as holder:
            parts = holder.iter_bytes()  # kept: the response is closed with it
            next(parts)
            futures = []
            for priority in (3, 1, 2, -1):
                futures.append(pool.submit(wait_for, priority))
                until_waiting(one_running, len(futures))
        for future in futures:
            future.result()
    assert order == [-1, 1, 2, 3]


def until_waiting(server: Served, count: int) -> None:
    url = f"{server.url}/serving/get_request_numbers"
    wait_until(lambda: f'"data": {count}}}' in httpx.get(url, timeout=HANG_S).text)
