"""What requests hold and may need, as admission rules count it."""

from chairlift.core.policy import Standing


def num_placed(running: Standing) -> int:
    """Known tokens that have a place: all of a prompt, but a sampled one gets it when it is computed."""
    is_decoding = running.num_known - running.num_computed == 1
    return running.num_computed if is_decoding else running.num_known


def num_places(standing: Standing, num_output: int) -> int:
    """Places that its text takes with so much output; the last token needs none."""
    return len(standing.request.prompt) + num_output - 1
