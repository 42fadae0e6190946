"""Requests of an engine that is gone go on in another: from their prompts and the tokens made so far."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from chairlift.core.request import Request


def resume(samples: Sequence[Request], outputs: Mapping[int, Sequence[int]]) -> list[tuple[Request, ...]]:
    """Groups of the samples named in `outputs`, after the tokens given there; the others have ended.

    Samples without a token start together, as new ones do. Any other starts by itself and finds shared blocks in the
    prefix index.
    """
    left = [
        replace(request, output=tuple(outputs[request.sample_index]))
        for request in samples
        if request.sample_index in outputs
    ]
    fresh = tuple(request for request in left if not request.output)
    return [(request,) for request in left if request.output] + ([fresh] if fresh else [])
