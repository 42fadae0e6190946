"""What crosses the wire between front ends and an engine: small arrays in MessagePack.

Front end to engine: `Hello` once, then `Submit` and `Abort`. Engine to front end: `Ready` in answer to `Hello`, then
one `Step` per step and front end with all of its outputs. A request is named by a key that its front end chose; its n
samples by their index. A front end with an open live page sends `Watch` and gets a `Snapshot` a second. Where there are
several replicas, `Step` tells the load too, `Prefixes` what is cached, `Told` figures for operators; `Move` and `Moved`
take a request to another, `Recall` one that has not begun. `Unload` is answered by `Unloaded` once no request has the
adapter.
"""

import dataclasses

import msgspec

from chairlift.config.version import VERSION
from chairlift.core.attributes import NO_ATTRIBUTES, Attributes
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.policy import Service
from chairlift.core.score import PackedScores, TokenScore
from chairlift.live.adapters.registry import Adapter
from chairlift.live.moving.ticket import Ticket
from chairlift.telemetry.metrics.figures import Figures
from chairlift.telemetry.phases import Mark


class Hello(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """A front end has connected."""


class Submit(msgspec.Struct, tag=True, array_like=True, frozen=True):
    key: int
    prompt: list[int]
    params: SamplingParams
    max_output: int  # `params.max_tokens`, or what the limits leave
    attributes: Attributes = NO_ATTRIBUTES
    expires: float | None = None  # deadline, by the machine's monotonic clock
    name: str = ""  # the request id of clients and logs
    is_traced: bool = False  # wants marks
    # Of a request resumed from a dead engine: the tokens of its open samples.
    outputs: dict[int, list[int]] | None = None
    # Of a suspect: how many engines died busy with nothing else. None: not suspected.
    num_alone: int | None = None
    ticket: Ticket | None = None  # for the keys and values that another engine has computed
    adapter: Adapter | None = None  # the one that `attributes` numbers, for engines that have not read it


class Abort(msgspec.Struct, tag=True, array_like=True, frozen=True):
    key: int
    sample: int | None = None  # None: all samples
    has_moved: bool = False  # it goes on in another engine


class Move(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """A request is to go on in another engine: with its keys and values, if that is cheaper, or at any price."""

    key: int
    is_forced: bool = False


class Recall(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """A request is to go on in another engine unless it has begun: answered by `Moved` or `Kept`."""

    key: int


class Kept(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """A request that was called back stays, or has ended."""

    key: int


class Moved(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """The engine has ended a request that was to move; its last output came before."""

    key: int
    ticket: Ticket | None = None  # None: its keys and values are computed again


class Output(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """News of one sample: a token, its end, or both."""

    key: int
    sample: int
    token: int | None
    finish: str | None = None  # FinishReason's value, on the last output of this sample
    score: TokenScore | None = None
    num_cached: int = 0  # prompt tokens found in the prefix index
    # Scores of prompt tokens 1..; set (with token None) on one output of sample 0 before its first token.
    prompt_scores: PackedScores | None = None
    error: str | None = None  # why, when finish is "error"
    error_field: str | None = None  # set when the request was invalid
    marks: list[Mark] | None = None  # of sample 0 since its last output, if the request is traced
    vector: bytes | None = None  # float32 numbers, of a model that makes them instead of text; before its token


class Step(msgspec.Struct, tag=True, array_like=True, frozen=True, gc=False):
    outputs: list[Output]
    num_running: int
    num_waiting: int
    queued: int = 0  # work before a new request's own, in tokens; of one of several replicas
    num_taken: int = 0  # requests of this front end so far


class Told(msgspec.Struct, tag=True, array_like=True, frozen=True):
    figures: Figures


class Prefixes(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Hashes of what the prefix index holds: all, or changes since the message before."""

    is_whole: bool
    version: int  # grows by one with every change; a front end that misses one sends `AskPrefixes`
    published: list[bytes]
    lost: list[bytes] = []


class AskPrefixes(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """A front end wants all prefixes."""


class Drain(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """An operator wants the engine to be left by its requests, or to take some again."""

    is_on: bool


class Draining(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """The engine asks to be left by its requests, or takes some again."""

    is_on: bool


class Unload(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """An adapter is offered no more."""

    adapter: int


class Unloaded(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """The engine has forgotten it: its last request has ended."""

    adapter: int


class Elsewhere(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """What users were served in other replicas since the message before, as far as this front end sees it."""

    services: list[Service]


class Proven(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """A front end has failed a request that kept ending the engine: that counts as progress."""


class Watch(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """A front end begins or ends watching."""

    is_on: bool


class Snapshot(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """The live page's data as JSON (docs/live-page.md): everything, or the last second's news."""

    is_whole: bool
    data: bytes


class Explain(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Asks for the latency breakdown of a request, named by the engine's own number."""

    request: int


class Explained(msgspec.Struct, tag=True, array_like=True, frozen=True):
    request: int
    data: bytes | None  # JSON; None: not known, or not any more


class EngineInfo(msgspec.Struct, frozen=True):
    """What front ends need to check requests and answer status routes."""

    limits: Limits
    dtype: str
    device: str
    fingerprint: str | None = None  # None: answers are not exact
    version: str = VERSION
    moves_kv: bool = False  # requests can leave it with their keys and values
    counts_users: bool = False  # its policy goes by what users are served in other replicas too
    chosen: dict[str, str] = {}  # in place of settings that leave it to the machine or the model


class Ready(msgspec.Struct, tag=True, array_like=True, frozen=True):
    info: EngineInfo
    suspects: list[int] = []  # this front end's requests that the engine before died busy with
    is_alone: bool = False  # there was one suspect, of all front ends
    was_killed: bool = False  # from outside, as far as can be told
    is_draining: bool = False
    clock: float = 0.0  # the engine's monotonic clock when this was sent, which is another on another machine


ToEngine = Hello | Submit | Abort | Move | Recall | Unload | Proven | Watch | Explain | AskPrefixes | Drain | Elsewhere
FromEngine = Ready | Step | Told | Moved | Kept | Unloaded | Prefixes | Draining | Snapshot | Explained


def resumed(message: Submit, outputs: dict[int, list[int]], waited_s: float) -> Submit:
    """The request for the next engine, `waited_s` after its arrival. A beam search begins again."""
    attributes = message.attributes
    if attributes.deadline_s is not None:
        attributes = dataclasses.replace(attributes, deadline_s=attributes.deadline_s - waited_s)
    left = None if message.params.beam_width else outputs
    return msgspec.structs.replace(message, attributes=attributes, outputs=left, ticket=None)


def with_scored_prompt(message: Submit) -> Submit:
    """The request once its prompt scores were sent, which are sent once."""
    return msgspec.structs.replace(message, params=dataclasses.replace(message.params, prompt_logprobs=None))


def with_adapter(message: Submit, adapter: Adapter) -> Submit:
    attributes = dataclasses.replace(message.attributes, adapter=adapter.number)
    return msgspec.structs.replace(message, attributes=attributes, adapter=adapter)
