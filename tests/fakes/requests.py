"""Requests for the core, made short."""

from typing import Any

from chairlift.core.attributes import Attributes
from chairlift.core.ids import RequestId
from chairlift.core.params import SamplingParams
from chairlift.core.request import Request


def make_request(id: int, prompt: list[int] | range, max_output: int = 4, **more: Any) -> Request:
    fields = Request.__dataclass_fields__.keys() - {"output"}
    own = {name: more.pop(name) for name in list(more) if name in fields}
    attributes = {name: more.pop(name) for name in list(more) if name in Attributes.__dataclass_fields__}
    params = SamplingParams(max_tokens=max_output, **more)
    return Request(
        id=RequestId(id),
        prompt=tuple(prompt),
        params=params,
        max_output=max_output,
        attributes=Attributes(**attributes),
        **{"seed": id} | own,
    )


def make_samples(
    first_id: int, prompt: list[int] | range, n: int, max_output: int = 4, **more: Any
) -> tuple[Request, ...]:
    """As the engine's front door makes them: only the first sample has its prompt scored."""
    shared = {"seed": first_id, "n": n} | more
    others = {key: value for key, value in shared.items() if key != "prompt_logprobs"}
    lead = make_request(first_id, prompt, max_output, **shared)
    return lead, *(make_request(first_id + i, prompt, max_output, sample_index=i, **others) for i in range(1, n))


def make_search(
    first_id: int, prompt: list[int] | range, width: int, max_output: int = 4, **more: Any
) -> tuple[Request, ...]:
    """A beam search: one request per member."""
    num_stops = len(more.get("stop_ids", ()))
    shared = {"seed": first_id, "beam_width": width, "logprobs": width * max(2, 1 + num_stops)} | more
    return tuple(make_request(first_id + i, prompt, max_output, sample_index=i, **shared) for i in range(width))
