"""The requests of the contest's client: its prompts in the order of the file, repeated, at its own arrivals.

Always: the same data, rate and seed give the same requests at the same times.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, cycle, islice

import msgspec
import numpy as np

from chairlift.core.errors import InvalidConfig
from chairlift.lab.workload.item import Item

ROUTE = "/models/llama2/generate_stream"
Prompt = tuple[str, int]  # a text, and the tokens it asks for


@dataclass(frozen=True, slots=True)
class ContestRequest:
    index: int  # in the order of sending
    at_s: float  # after the first
    prompt: str
    max_new_tokens: int

    def request(self, host: str) -> bytes:
        """As the original writes it, with strings for true and false."""
        parameters = {"max_new_tokens": self.max_new_tokens, "do_sample": "False", "return_full_text": "True"}
        return post(host, {"inputs": self.prompt, "parameters": parameters})


def post(host: str, body: object) -> bytes:
    content = msgspec.json.encode(body)
    head = (
        f"POST {ROUTE} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def prompts_of(items: Iterable[Item], text: Callable[[Item, int], str], num: int) -> list[Prompt]:
    """The prompts of the first `num` items; `text` makes those that are not written."""
    return [(_prompt(item, index, text), item.output_tokens) for index, item in enumerate(islice(items, num))]


def _prompt(item: Item, index: int, text: Callable[[Item, int], str]) -> str:
    if item.prompt is None:
        return text(item, index)
    if not isinstance(item.prompt, str):
        raise InvalidConfig(f"request {index + 1} of the data is a chat, which llm-serving's API cannot send")
    return item.prompt


def timed_requests(prompts: Sequence[Prompt], rate: float, num: int, seed: int) -> list[ContestRequest]:
    """`num` requests; prompts are repeated."""
    times = chain([0.0], accumulate(gaps(rate, num - 1, seed)))
    return [
        ContestRequest(index, at_s, prompt, max_new_tokens)
        for index, (at_s, (prompt, max_new_tokens)) in enumerate(zip(times, cycle(prompts), strict=False))
    ]


def interval_s(rate: float) -> float:
    """The mean gap, as the original rounds it: 150 per second become 100, and more than 200 arrive all at once."""
    return round(1.0 / rate, 2)


def gaps(rate: float, num: int, seed: int) -> list[float]:
    """Whole milliseconds drawn from a Poisson distribution, so nearly equal: not a Poisson process."""
    draws = np.random.default_rng(seed).poisson(interval_s(rate) * 1000.0, num)
    return [int(milliseconds) / 1000.0 for milliseconds in draws]
