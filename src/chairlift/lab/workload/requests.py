"""Items as requests for the engine, with synthetic prompts and exact output lengths."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from chairlift.core.errors import InvalidConfig, InvalidRequest
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits, num_offered, output_room
from chairlift.core.params import SamplingParams
from chairlift.core.request import Request
from chairlift.lab.workload.item import Item
from chairlift.lab.workload.prompts import TokenPrompts


def requests_of(items: Iterable[Item], limits: Limits, seed: int) -> Iterator[tuple[float, Request]]:
    """Each request with its arrival, numbered from 1 in the order of the workload, made one at a time. Of several
    samples it is the first, and the next request's number leaves room for the others.

    Raises InvalidConfig at the first that can never be served.
    """
    prompts = TokenPrompts(seed, limits.vocab_size)
    id = 1
    for index, item in enumerate(items):
        request = _request(item, index, RequestId(id), prompts, limits)
        yield item.arrival_s, request
        id += num_samples(request)


def num_samples(request: Request) -> int:
    return max(request.params.num_samples, request.params.beam_width)


def samples_of(lead: Request) -> tuple[Request, ...]:
    """The samples of a request, or the members of its search, with the numbers after its own."""
    more = (replace(lead, id=RequestId(lead.id + i), sample_index=i) for i in range(1, num_samples(lead)))
    return lead, *more


def _request(item: Item, index: int, id: RequestId, prompts: TokenPrompts, limits: Limits) -> Request:
    prompt = prompts.tokens(item, index)
    try:
        params = SamplingParams(
            temperature=0.0, max_tokens=item.output_tokens, ignore_eos=True, n=item.n, beam_width=item.beam_width
        )
        max_output = output_room(prompt, params, limits)
    except InvalidRequest as error:
        is_context = limits.max_model_len <= limits.max_pool_tokens
        remedy = "--divide-lengths makes requests shorter" + ", --max-model-len the context longer" * is_context
        if error.field in ("n", "beam_width"):
            raise InvalidConfig(f"request {index + 1} of the workload: {error}") from error
        raise InvalidConfig(f"request {index + 1} of the workload: {error.message}; {remedy}") from error
    if params.beam_width:
        params = replace(params, logprobs=num_offered(params, 0, len(prompt), limits))
    return Request(
        id=id,
        prompt=prompt,
        params=params,
        max_output=max_output,
        seed=index,
        attributes=item.attributes,
    )
