"""A request whose engine is gone goes on in another: from its prompt and the tokens that were made of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from chairlift.core.request import Request


def resume(samples: Sequence[Request], outputs: Mapping[int, Sequence[int]]) -> list[tuple[Request, ...]]:
    """The samples named in `outputs`, after the tokens given there; the others have ended. A group shares its prompt.

    Samples without a token start together, as new ones do. Any other is known further than the prompt, and goes by
    itself: what it shares with the others it finds in the prefix index.
    """
    left = [
        replace(request, output=tuple(outputs[request.sample_index]))
        for request in samples
        if request.sample_index in outputs
    ]
    fresh = tuple(request for request in left if not request.output)
    return [(request,) for request in left if request.output] + ([fresh] if fresh else [])
