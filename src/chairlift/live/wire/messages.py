"""What crosses the wire between front ends and the engine: small arrays in MessagePack.

Front end to engine: `Hello` once, then `Submit` and `Abort`. Engine to front end: `Ready` in answer to `Hello`, then
one `Step` per step and front end with all of its outputs. A request is named by a key that its front end chose; its n
samples by their index. A front end whose page is open sends `Watch` and gets a `Snapshot` a second.
"""

import dataclasses

import msgspec

from chairlift.core.attributes import NO_ATTRIBUTES, Attributes
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.score import TokenScore
from chairlift.telemetry.phases import Mark


class Hello(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """A front end is there and wants to know what it can ask for."""


class Submit(msgspec.Struct, tag=True, array_like=True, frozen=True):
    key: int
    prompt: list[int]
    params: SamplingParams
    max_output: int  # `params.max_tokens`, or what the limits that it was checked against leave
    attributes: Attributes = NO_ATTRIBUTES
    expires: float | None = None  # when it is given up, by the monotonic clock of this machine
    name: str = ""  # the request's id, as clients and logs know it
    is_traced: bool = False  # wants to hear what became of it
    # Of a request that goes on from an engine that is gone: the tokens its samples have. Those not named have ended.
    outputs: dict[int, list[int]] | None = None
    # Of a request that may have ended engines: how often one died that was busy with nothing else. None: not suspected.
    num_alone: int | None = None


class Abort(msgspec.Struct, tag=True, array_like=True, frozen=True):
    key: int
    sample: int | None = None  # None: all samples


class Output(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """News of one sample: a token, its end, or both."""

    key: int
    sample: int
    token: int | None
    finish: str | None = None  # FinishReason's value, on the last output of this sample
    score: TokenScore | None = None
    num_cached: int = 0  # prompt tokens found in the prefix index
    # Scores of prompt tokens 1..; set (with token None) on one output of sample 0 before its first token.
    prompt_scores: list[TokenScore] | None = None
    error: str | None = None  # why, when finish is "error"
    error_field: str | None = None  # set when the request itself was at fault
    marks: list[Mark] | None = None  # what became of sample 0 since its last output, if the request is traced


class Step(msgspec.Struct, tag=True, array_like=True, frozen=True, gc=False):
    outputs: list[Output]
    num_running: int
    num_waiting: int


class Proven(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """A front end has failed a request that ended the engine again and again: the server is a step further."""


class Watch(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """A front end begins to look on, or looks away."""

    is_on: bool


class Snapshot(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """What the engine shows of itself, as JSON (docs/live-page.md): everything, or what the last second has brought."""

    is_whole: bool
    data: bytes


class Explain(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Where did the time of this request go? It is named by the engine's own number."""

    request: int


class Explained(msgspec.Struct, tag=True, array_like=True, frozen=True):
    request: int
    data: bytes | None  # JSON; None: the engine does not know it, or not any more


class EngineInfo(msgspec.Struct, frozen=True):
    """What front ends need to know of the engine to check requests and answer status routes."""

    limits: Limits
    dtype: str
    device: str
    fingerprint: str | None = None  # None: answers are not exact


class Ready(msgspec.Struct, tag=True, array_like=True, frozen=True):
    info: EngineInfo
    suspects: list[int] = []  # this front end's requests that the engine before was busy with when it died
    is_alone: bool = False  # there was one, and no other of any front end
    was_killed: bool = False  # by somebody, as far as can be told


ToEngine = Hello | Submit | Abort | Proven | Watch | Explain
FromEngine = Ready | Step | Snapshot | Explained


def resumed(message: Submit, outputs: dict[int, list[int]], waited_s: float) -> Submit:
    """The request as another engine is told of it, `waited_s` after it was asked. A search, which says nothing before
    its end, begins again."""
    attributes = message.attributes
    if attributes.deadline_s is not None:
        attributes = dataclasses.replace(attributes, deadline_s=attributes.deadline_s - waited_s)
    return msgspec.structs.replace(
        message,
        attributes=attributes,
        outputs=None if message.params.beam_width else outputs,
    )


def with_scored_prompt(message: Submit) -> Submit:
    """The request once the scores of its prompt were told, which are told once."""
    return msgspec.structs.replace(message, params=dataclasses.replace(message.params, prompt_logprobs=None))
