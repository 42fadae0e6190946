"""What requests hold and may need, as admission rules count it."""

from chairlift.core.policy import Standing
from chairlift.core.request import Request


def num_placed(running: Standing) -> int:
    """Known tokens that have a place: all of a prompt, but a sampled one gets it when it is computed."""
    num_known, num_computed = running.num_known, running.num_computed
    return num_computed if num_known - num_computed == 1 else num_known


def num_places(request: Request, num_output: int) -> int:
    """Places that its text takes with so much output; the last token needs none."""
    return len(request.prompt) + num_output - 1
