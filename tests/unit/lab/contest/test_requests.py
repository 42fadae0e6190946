from itertools import pairwise
from statistics import fmean, pstdev

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.lab.contest.requests import ContestRequest, gaps, interval_s, prompts_of, timed_requests
from chairlift.lab.workload.item import Item

ITEMS = [Item(prompt_tokens=n, output_tokens=10 * n) for n in (1, 2, 3)]


def text(item: Item, index: int) -> str:
    return f"{index}: {item.prompt_tokens}"


def requests_of(rate: float, num: int, seed: int = 0) -> list[ContestRequest]:
    return timed_requests(prompts_of(ITEMS, text, num), rate, num, seed)


@pytest.mark.parametrize(
    ("rate", "mean"), [(0.5, 2.0), (3, 0.33), (6, 0.17), (16, 0.06), (60, 0.02), (150, 0.01), (250, 0.0)]
)
def test_the_mean_gap_is_rounded_as_the_original_rounds_it(rate: float, mean: float) -> None:
    assert interval_s(rate) == mean


def test_gaps_are_whole_milliseconds_that_hardly_vary() -> None:
    drawn = gaps(5, 5000, seed=1)
    assert fmean(drawn) == pytest.approx(0.2, rel=0.01)
    assert pstdev(drawn) == pytest.approx(0.0141, rel=0.1)
    assert all(round(1000 * gap, 6).is_integer() for gap in drawn)


def test_1500_requests_at_150_a_second_take_15_seconds() -> None:
    requests = requests_of(150, 1500)
    assert len(requests) == 1500
    assert requests[-1].at_s == pytest.approx(15, rel=0.02)
    assert all(after.at_s >= before.at_s for before, after in pairwise(requests))


def test_prompts_are_repeated_in_order() -> None:
    requests = requests_of(250, 7)
    assert [request.max_new_tokens for request in requests] == [10, 20, 30, 10, 20, 30, 10]
    assert [request.prompt for request in requests[:4]] == ["0: 1", "1: 2", "2: 3", "0: 1"]
    assert {request.at_s for request in requests} == {0.0}


def test_the_seed_decides() -> None:
    assert requests_of(5, 9, seed=1) == requests_of(5, 9, seed=1)
    assert requests_of(5, 9, seed=1) != requests_of(5, 9, seed=2)


def test_a_written_prompt_is_sent_unchanged_and_a_chat_is_refused() -> None:
    written = Item(prompt_tokens=1, output_tokens=2, prompt="Say é", tokens=(1,))
    assert prompts_of([written], text, 1) == [("Say é", 2)]
    with pytest.raises(InvalidConfig, match="request 1 of the data is a chat"):
        prompts_of([Item(prompt_tokens=1, output_tokens=2, prompt=({"role": "user"},))], text, 1)


def test_the_body_is_the_originals_with_strings_for_false_and_true() -> None:
    head, _, body = requests_of(5, 1)[0].request("h:1").partition(b"\r\n\r\n")
    assert head.startswith(b"POST /models/llama2/generate_stream HTTP/1.1\r\nHost: h:1\r\n")
    assert b"\r\nConnection: close\r\n" in head
    assert body == (
        b'{"inputs":"0: 1","parameters":{"max_new_tokens":10,"do_sample":"False","return_full_text":"True"}}'
    )
