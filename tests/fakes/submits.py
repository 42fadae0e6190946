"""Messages as front ends send them, made short."""

from typing import Any

from chairlift.core.params import SamplingParams
from chairlift.live.wire.messages import Submit

MANY = 10**6  # tokens; more than any engine of the tests has room for


def submit(key: int, prompt: list[int], params: SamplingParams, **more: Any) -> Submit:
    return Submit(key, prompt, params, params.max_tokens or MANY, **more)
