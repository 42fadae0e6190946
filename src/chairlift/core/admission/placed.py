"""What requests hold and may need, as admission rules count it."""

from chairlift.core.policy import RequestView
from chairlift.core.request import Request


def num_placed(running: RequestView) -> int:
    """Known tokens with a place in the cache: a sampled token gets one when it is computed, a prompt at once."""
    num_known, num_computed = running.num_known, running.num_computed
    return num_computed if num_known - num_computed == 1 else num_known


def num_places(request: Request, num_output: int) -> int:
    """Places in the cache that a request takes with so much output; the last token needs none."""
    return len(request.prompt) + num_output - 1
