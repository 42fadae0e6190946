"""Items as requests for the engine, with synthetic prompts and exact output lengths."""

from collections.abc import Iterable, Iterator

from chairlift.core.errors import InvalidConfig, InvalidRequest
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits, output_room
from chairlift.core.params import SamplingParams
from chairlift.core.request import Request
from chairlift.lab.workload.item import Item
from chairlift.lab.workload.prompts import TokenPrompts


def requests_of(items: Iterable[Item], limits: Limits, seed: int) -> Iterator[tuple[float, Request]]:
    """Each request with its arrival, numbered from 1 in the order of the workload, made one at a time.

    Raises InvalidConfig at the first that can never be served.
    """
    prompts = TokenPrompts(seed, limits.vocab_size)
    for index, item in enumerate(items):
        yield item.arrival_s, _request(item, index, prompts, limits)


def _request(item: Item, index: int, prompts: TokenPrompts, limits: Limits) -> Request:
    params = SamplingParams(temperature=0.0, max_tokens=item.output_tokens, ignore_eos=True)
    prompt = prompts.tokens(item, index)
    try:
        max_output = output_room(prompt, params, limits)
    except InvalidRequest as error:
        is_context = limits.max_model_len <= limits.max_pool_tokens
        remedy = "--divide-lengths makes requests shorter" + ", --max-model-len the context longer" * is_context
        raise InvalidConfig(f"request {index + 1} of the workload: {error.message}; {remedy}") from error
    return Request(
        id=RequestId(index + 1),
        prompt=prompt,
        params=params,
        max_output=max_output,
        seed=index,
        attributes=item.attributes,
    )
