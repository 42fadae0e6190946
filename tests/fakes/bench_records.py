"""Synthetic records of requests."""

from array import array
from collections.abc import Sequence

from chairlift.lab.bench.record import ClientRecord, Ending


def record(
    index: int = 0,
    sent_s: float = 0.0,
    times: Sequence[float] = (),
    *,
    due_s: float | None = None,
    last_s: float | None = None,
    tokens: int | None = None,
    asked: int | None = None,
    prompt_tokens: int = 10,
    cached: int | None = None,
    ending: Ending = Ending.FULL,
    reason: str = "",
) -> ClientRecord:
    """`times` are those of the chunks; a chunk is a token unless `tokens` says otherwise."""
    num_tokens = len(times) if tokens is None else tokens
    return ClientRecord(
        index=index,
        due_s=sent_s if due_s is None else due_s,
        sent_s=sent_s,
        times=array("d", times).tobytes(),
        last_s=(times[-1] if times else sent_s) if last_s is None else last_s,
        asked_tokens=num_tokens if asked is None else asked,
        prompt_tokens=prompt_tokens,
        cached_tokens=cached,
        output_tokens=num_tokens,
        is_told=tokens is not None,
        ending=ending,
        reason=reason,
    )
